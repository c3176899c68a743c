"""A program's text made quicker to read: the engine parses it anew in every query.

Nothing that is computed changes: types get names, and values that are small are not freed one by one before
the end of a run. Each party does it for itself, after the hash of the text that both compiled.
"""

from __future__ import annotations

import math
import re

KEPT_BYTES = 64 << 20
"""Memory that may wait for the end of a run, by a value's 16 bytes in the largest kind of share."""
_VALUE_BYTES = 16
_TYPE = re.compile(r"tensor<(?P<sizes>(?:\d+x)*)(?:!pphlo\.secret<\w+>|\w+)>")
_FREE = re.compile(r"    pphlo\.free (?P<value>%\d+) : (?P<type>.*)")
_VIEW = re.compile(
    r"    (?P<result>%\d+) = pphlo\.(?:slice|reshape|transpose|broadcast|reverse) (?P<of>%\w+)"
)


def shortened(code: str) -> str:
    """The same program in fewer lines and shorter ones."""
    return _with_named_types(_with_fewer_frees(code))


def _with_named_types(code: str) -> str:
    names: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"!t{len(names)}")

    body = _TYPE.sub(named, code)
    return "".join(f"{name} = {written}\n" for written, name in names.items()) + body


def _with_fewer_frees(code: str) -> str:
    """Without the frees of the smallest values, as long as all of them fit into KEPT_BYTES.

    A view keeps what it looks at, so the two are kept or freed together. Frees inside of a region, which
    are further in, stay.
    """
    lines, whole, sizes = code.split("\n"), {}, {}  # type: ignore[var-annotated]
    for line in lines:
        if view := _VIEW.match(line):
            whole[view["result"]] = whole.get(view["of"], view["of"])
        elif free := _FREE.fullmatch(line):
            value = whole.get(free["value"], free["value"])
            sizes[value] = max(sizes.get(value, 0), _bytes(free["type"]))
    kept, left = set(), KEPT_BYTES
    for value, size in sorted(sizes.items(), key=lambda item: item[1]):
        left -= size
        if left < 0:
            break
        kept.add(value)

    def is_dropped(line: str) -> bool:
        free = _FREE.fullmatch(line)
        return free is not None and whole.get(free["value"], free["value"]) in kept

    return "\n".join(line for line in lines if not is_dropped(line))


def _bytes(written: str) -> int:
    found = _TYPE.search(written)
    sizes = [int(size) for size in found["sizes"].split("x") if size] if found else []
    return _VALUE_BYTES * math.prod(sizes)

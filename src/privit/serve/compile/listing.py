"""The costly operations of a compiled program, read from its text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from privit.program.operation import Operation

Kind = str
"""Who knows a value: public, server, client, or shared by both."""

_LINE = re.compile(r"(?P<result>%\d+) = pphlo\.(?P<name>\w+)(?P<rest>.*)")
_TENSOR = re.compile(r"tensor<(?P<sizes>(?:\d+x)*)(?P<element>[^>]*>?)>")
_OPERAND = re.compile(r"%(?:arg)?\d+")
_LOCAL = {"slice", "reshape", "broadcast", "concatenate", "transpose", "convert", "gather", "reverse", "pad"}
_NAMES = {
    "exponential": "exp",
    "reciprocal": "reciprocal",
    "rsqrt": "rsqrt",
    "select": "select",
    "log": "log",
    "sine": "sine",
    "logistic": "logistic",
    "tanh": "tanh",
    "sqrt": "sqrt",
    "power": "power",
    "maximum": "maximum",
    "minimum": "minimum",
    "scatter": "scatter",
    "sort": "sort",
    "floor": "floor",
    "equal": "equal",
}


def program_operations(code: str, owners: Sequence[str]) -> list[Operation]:
    """The operations of a program's text that make the parties talk, in order.

    `owners` says of each argument whose it is: server or client.
    """
    kinds: dict[str, Kind] = {f"%arg{i}": owner for i, owner in enumerate(owners)}
    found: list[Operation] = []
    depth = 0
    for line in code.splitlines():
        text = line.strip()
        depth += text.startswith("reducer(")
        if depth:
            # Inside a reduction: the reduction itself is what is counted.
            depth -= text == "}"
            continue
        match = _LINE.match(text)
        if match is None:
            continue
        name = "gather" if "@spu.gather" in text else match["name"]
        operands, shapes = _parts(match["rest"])
        bits = ["i1" in element for _, element in _tensors(match["rest"])]
        known = [kinds.get(operand, "public") for operand in operands]
        kinds[match["result"]] = _result_kind(name, known)
        operation = _operation(name, match["rest"], operands, known, shapes, bits)
        if operation is not None:
            # The engine multiplies a batch of matrices one after the other.
            found += [operation] * (shapes[0][0] if name == "dot_general" else 1)
    return found


def _tensors(rest: str) -> list[tuple[tuple[int, ...], str]]:
    signature = rest[rest.rindex(" : ") :] if " : " in rest else rest
    return [
        (tuple(int(s) for s in m["sizes"].split("x") if s), m["element"]) for m in _TENSOR.finditer(signature)
    ]


def _parts(rest: str) -> tuple[list[str], list[tuple[int, ...]]]:
    body = rest[: rest.rindex(" : ")] if " : " in rest else rest
    return _OPERAND.findall(body), [shape for shape, _ in _tensors(rest)]


def _result_kind(name: str, known: list[Kind]) -> Kind:
    if name == "constant" or not known or set(known) == {"public"}:
        return "public"
    owners = set(known) - {"public"}
    if len(owners) == 1 and (name in _LOCAL or name in ("add", "multiply", "negate", "subtract")):
        return owners.pop()
    return "shared"


def _operation(
    name: str,
    rest: str,
    operands: list[str],
    known: list[Kind],
    shapes: list[tuple[int, ...]],
    bits: list[bool],
) -> Operation | None:
    if set(known) <= {"public"}:
        return None
    values = math.prod(shapes[-1])
    if name in ("dot", "dot_general"):
        left, right = shapes[0][-2:], shapes[1][-2:]
        return Operation("matmul" + _suffix(known), (left[0], left[1], right[1]))
    if name == "multiply":
        if any(bits):
            # A public bit selects for free.
            shared = all(kind == "shared" for kind in known)
            return Operation("multiply_bit", (values,)) if shared else None
        if operands[0] == operands[1]:
            return Operation("square", (values,))
        if set(known) == {"server", "public"}:
            return Operation("scale_weight", (values,))
        return Operation("multiply" + _suffix(known), (values,))
    if name == "less" or name == "greater":
        return Operation("compare" + _suffix(known), (values,))
    if name == "divide":
        return Operation("divide" + _suffix(known), (values,))
    if name == "reduce" and "applies pphlo.add" in rest and "i32" in rest:
        # The only whole numbers in a program are bits.
        return Operation("count_bits", (math.prod(shapes[0]),))
    if name == "convert" and bits[0] and "f32" in rest:
        return Operation("number_bit", (values,))
    if name == "reduce" and "applies pphlo.add" not in rest:
        return Operation("max", (math.prod(shapes[0][:-1]), shapes[0][-1]))
    return Operation(_NAMES[name], (values,)) if name in _NAMES else None


def _suffix(known: list[Kind]) -> str:
    kinds = set(known)
    if "public" in kinds:
        return "_public"
    if kinds == {"server", "client"}:
        return "_input"
    return "_weight" if "server" in kinds and "shared" in kinds else ""

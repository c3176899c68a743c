"""Flags that are given more than once: lists grow, everything else is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_origin, get_type_hints

from privit.errors import RequestError


def joined_flags(arguments: Sequence[str], verbs: Mapping[str, Callable[..., Any]]) -> list[str]:
    """The arguments with every list's values behind its first flag.

    tyro takes the last of several equal flags and forgets the others without a word, so that
    `--set a=1 --set b=2` would only set b. Here this becomes `--set a=1 b=2`, and a flag that holds one
    value is refused the second time.
    """
    if not arguments or arguments[0] not in verbs:
        return list(arguments)
    lists = _list_flags(verbs[arguments[0]])
    # What stands before the first flag, then each flag with what follows it.
    groups: list[list[str]] = [[]]
    first: dict[str, list[str]] = {}
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for argument in arguments[:end]:
        if not argument.startswith("--"):
            groups[-1].append(argument)
            continue
        written, attached, value = argument.partition("=")
        flag = written.replace("_", "-")
        if flag in first and flag not in lists:
            raise RequestError(f"{written} was given more than once", "give it once: it holds one value")
        if flag in first:
            # Values that follow belong to the first flag, too.
            groups.append(first[flag])
            first[flag] += [value] if attached else []
        else:
            groups.append([argument])
            first[flag] = groups[-1]
    once = {id(group): group for group in groups}.values()
    return [argument for group in once for argument in group] + list(arguments[end:])


def _list_flags(function: Callable[..., Any]) -> set[str]:
    """The flags of a verb that hold any number of values."""
    hints = get_type_hints(function)
    for hint in list(hints.values()):
        if is_dataclass(hint):
            named = get_type_hints(hint)
            hints |= {field.name: named[field.name] for field in fields(hint)}
    return {
        f"--{name.strip('_').replace('_', '-')}" for name, hint in hints.items() if get_origin(hint) is tuple
    }

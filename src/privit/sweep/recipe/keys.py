"""The keys that each table of a recipe may have, and of what type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Table = Mapping[str, Any]
Keys = dict[str, type]

SITE_BUDGETS: Keys = {"keep": list, "budgets": list, "grid": dict}
COST_BUDGETS: Keys = {"max_seconds": list, "max_bytes": list, "max_rounds": list, "max_relu_ops": list}
PRICE: Keys = {"protocol": str, "network": str}
FRONT: Keys = {
    "methods": list,
    **SITE_BUDGETS,
    **COST_BUDGETS,
    **PRICE,
    "names": list,
    "one_descent": bool,
    "only": list,
}
EXPERIMENT: Keys = FRONT | {
    "name": str,
    "title": str,
    "paper": str,
    "shows": list,
    "note": str,
    "bench": list,
    "against": list,
    "agreement": dict,
    "private": dict,
    "fronts": list,
    "model": str,
    "data": str,
    "seeds": list,
}
METHOD: Keys = {
    "base": str,
    "label": str,
    "about": str,
    "search": dict,
    "finetune": dict,
    "strategy": int,
    "retrain": bool,
    "fitted": bool,
    "layers": list,
    "student": str,
    "fill": dict,
}
ASKED: Keys = {"images": int, "protocols": list}
COST: Keys = {"protocols": list, "networks": list, "export": bool}
RECIPE: Keys = {
    "title": str,
    "include": list,
    "model": str,
    "data": str,
    "preset": str,
    "seeds": list,
    "teacher_seed": int,
    "teacher": dict,
    "search": dict,
    "finetune": dict,
    "matching": dict,
    "cost": dict,
    "methods": dict,
    "experiments": list,
}


def known_entries(table: Any, keys: Keys, where: str, problems: list[str]) -> dict[str, Any]:
    """The entries of a table that are known and of the right type; the others become problems."""
    if not isinstance(table, dict):
        problems.append(f"{where} is {table!r}, not a table")
        return {}
    good = {}
    for name, value in table.items():
        if name not in keys:
            problems.append(f"{where} has an unknown key {name!r}; known: {', '.join(keys)}")
        elif not isinstance(value, keys[name]) or (keys[name] is int and isinstance(value, bool)):
            problems.append(f"{where}: {name} is {value!r}, but a {keys[name].__name__} was expected")
        else:
            good[name] = value
    return good


def check_folder_name(name: Any, where: str, problems: list[str]) -> None:
    """Adds a problem if cells could not be kept in a folder of that name."""
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", str(name)):
        problems.append(f"{where}: {name!r} cannot be a folder's name; use letters, digits, . and -")

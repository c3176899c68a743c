"""Every public name says what one gets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "privit"
FILES = sorted(SOURCE.rglob("*.py"))
LINES = 400
"""The longest that a file may be."""


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
CLASSES = {
    node.name: node
    for path in FILES
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.ClassDef)
}
OVERRIDDEN = {"Function": {"forward", "backward"}}
"""Methods of bases outside this package that say there what they do."""


def public(node: ast.AST, inside: str = "") -> Iterator[tuple[str, Definition]]:
    """Public classes, functions and methods; what is defined inside a function is not public."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition) and not child.name.startswith("_"):
            if not (isinstance(node, ast.ClassDef) and child.name in documented_above(node)):
                yield inside + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from public(child, f"{inside}{child.name}.")


def documented_above(node: ast.ClassDef) -> set[str]:
    """Methods that a base class already says what they do."""
    found: set[str] = set()
    for base in node.bases:
        name = ast.unparse(base).rsplit(".", 1)[-1]
        found |= OVERRIDDEN.get(name, set())
        if name in CLASSES and CLASSES[name] is not node:
            found |= documented_above(CLASSES[name])
            methods = (m for m in CLASSES[name].body if isinstance(m, ast.FunctionDef))
            found |= {method.name for method in methods if ast.get_docstring(method)}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_public_name_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "the file says nothing about itself"
    assert [name for name, node in public(tree) if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_short_enough_to_read_in_one_go(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES

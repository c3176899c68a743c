"""Imports point one way through the rooms; of train and serve only the artifact folder crosses."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "privit"
FILES = sorted(SOURCE.rglob("*.py"))
TORCH = {"torch", "torchvision", "timm", "transformers", "accelerate"}
ENGINE = {"jax", "jaxlib", "spu"}


def imported(path: Path, inside_functions: bool) -> set[str]:
    """Dotted names that a file imports: when it is loaded, or also when its functions run."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif not inside_functions and (_is_typing_only(node) or isinstance(node, ast.FunctionDef)):
            continue
        waiting += ast.iter_child_nodes(node)
    return found


def _is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def offending(names: set[str], packages: set[str]) -> list[str]:
    """Which of the names lie in one of the packages."""
    return sorted(n for n in names if any(n == p or n.startswith(p + ".") for p in packages))


def of(*parts: str) -> list[Path]:
    """The files below these packages."""
    return [path for path in FILES if path.relative_to(SOURCE).parts[0] in parts]


def name(path: Path) -> str:
    """How a test calls a file."""
    return str(path.relative_to(SOURCE))


ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
MAY_IMPORT = {
    "core": set(),
    "machine": set(),
    "data": {"core"},
    "program": {"core"},
    "cost": {"core", "program"},
    "serve": {"core", "machine", "data", "program", "cost"},
    "train": {"core", "data", "program", "cost"},
    "page": {"core", "data", "cost", "serve"},
    "building": {"core", "data", "program", "cost", "serve", "train", "exporting"},
}
"""The rooms whose imports point one way, and what each may know of, itself apart."""


def room_of(path: Path) -> str:
    """The room of a file; what lies in none is core."""
    first = path.relative_to(SOURCE).parts[0]
    return first if first in ROOMS else "core"


def rooms(names: set[str]) -> set[str]:
    """The rooms that imported names lie in."""
    inside = [name.split(".") for name in names if name.startswith("privit.")]
    return {parts[1] if parts[1] in ROOMS else "core" for parts in inside}


# These lie beside the core and stand above rooms: a config of training, and so a preset, has budgets in cost.
ABOVE = {SOURCE / name for name in ("__init__.py", "__main__.py", "demo.py", "config.py", "presets.py")}
RULED = [path for path in FILES if room_of(path) in MAY_IMPORT and path not in ABOVE]


@pytest.mark.parametrize("path", RULED, ids=name)
def test_imports_point_one_way_through_the_rooms(path: Path) -> None:
    room = room_of(path)
    assert rooms(imported(path, True)) - {room} <= MAY_IMPORT[room]


@pytest.mark.parametrize("path", [p for p in FILES if p not in of("cli") and p not in ABOVE], ids=name)
def test_nothing_imports_the_command_line(path: Path) -> None:
    assert offending(imported(path, True), {"privit.cli"}) == []


@pytest.mark.parametrize("path", of("program"), ids=name)
def test_the_program_needs_numpy_alone(path: Path) -> None:
    packages = {module.split(".")[0] for module in imported(path, True)}
    assert packages - set(sys.stdlib_module_names) <= {"numpy", "privit"}


@pytest.mark.parametrize(
    "path", [p for p in of("serve") if p.parent.name != "measure" and p.stem != "allowance"], ids=name
)
def test_only_measuring_and_the_allowance_of_bytes_know_of_prices(path: Path) -> None:
    found = offending(imported(path, True), {"privit.cost"})
    assert [n for n in found if not n.startswith("privit.cost.network.")] == []


@pytest.mark.parametrize("path", [p for p in FILES if p not in of("train", "serve", "page")], ids=name)
def test_the_core_loads_neither_torch_nor_the_engine(path: Path) -> None:
    assert offending(imported(path, False), TORCH | ENGINE | {"privit.train", "privit.serve"}) == []


@pytest.mark.parametrize("path", of("train"), ids=name)
def test_training_knows_nothing_of_the_engine(path: Path) -> None:
    assert offending(imported(path, True), ENGINE) == []


@pytest.mark.parametrize("path", of("serve", "page"), ids=name)
def test_serving_knows_nothing_of_torch(path: Path) -> None:
    assert offending(imported(path, True), TORCH) == []


def test_a_client_opens_its_folder_and_an_image_without_torch() -> None:
    code = """
import sys
import privit.artifact, privit.data.datasets, privit.data.images, privit.plan
data = privit.data.datasets.load_data("digits")
preprocessing = privit.artifact.Preprocessing(8, 1, (0.5,), (0.5,))
assert privit.data.datasets.preprocess(data.test.image(0), preprocessing).shape == (1, 8, 8)
print(sorted({"torch", "jax", "spu"} & sys.modules.keys()))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_nothing_is_pickled(path: Path) -> None:
    assert offending(imported(path, True), {"pickle", "dill", "cloudpickle", "joblib", "shelve"}) == []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "np.load", "numpy.load"):
            settings = {word.arg: ast.unparse(word.value) for word in node.keywords}
            assert settings.get("weights_only", settings.get("allow_pickle")) in ("True", "False")
            assert settings.get("weights_only", "True") == "True"
            assert settings.get("allow_pickle", "False") == "False"

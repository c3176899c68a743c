"""The wheel holds the whole package, its types and its data, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
DATA = {".json", ".png", ".svg", ".html", ".css", ".js", ".typed"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of this tree, by the backend that pyproject.toml names."""
    copy, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(
        ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.pyc")
    )
    subprocess.run(
        [sys.executable, "-c", BUILD, str(out)], cwd=copy, check=True, capture_output=True, text=True
    )
    (found,) = out.glob("privit-*.whl")
    return zipfile.ZipFile(found)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    """What the wheel says of itself."""
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    return message_from_bytes(wheel.read(name))


def test_every_file_of_the_package_is_in_it_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    files = [path for path in (source / "privit").rglob("*") if path.suffix in DATA | {".py"}]
    expected = {str(path.relative_to(source)) for path in files}
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {"privit/py.typed", "privit/page/static/index.html", "privit/cost/gates/circuits.json"} <= found


def test_a_licence_and_the_command_come_with_it(wheel: zipfile.ZipFile, metadata: Message) -> None:
    beside = {name.split("/", 1)[1]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert b"privit = privit.cli:main" in wheel.read(beside["entry_points.txt"])
    assert "licenses/LICENSE" in beside
    assert metadata["License-Expression"] == "Apache-2.0"


def asked_for(lines: list[str], extra: str) -> set[str]:
    """What pip installs with an extra, extras of our own that it names included."""
    found = {line.split(";")[0] for line in lines if "extra ==" not in line or f'extra == "{extra}"' in line}
    named = {part for line in found if line.startswith("privit[") for part in line[7:-1].split(",")}
    return found.union(*(asked_for(lines, other) for other in named))


@pytest.mark.parametrize("extra", ["serve", "page"])
def test_a_client_does_not_ask_for_torch(metadata: Message, extra: str) -> None:
    wanted = asked_for(metadata.get_all("Requires-Dist") or [], extra)
    assert "spu==0.9.5" in wanted
    assert not [line for line in wanted if line.startswith(("torch", "timm", "transformers", "datasets"))]


def test_the_version_is_said_once(metadata: Message) -> None:
    import privit

    assert metadata["Version"] == privit.__version__

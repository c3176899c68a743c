"""The wheel in empty environments: what an install takes, and a private question asked from there.

    python -m benchmarks.wheel        leaves dist/, writes docs/results/wheel.json; some minutes, mostly pip's

Builds sdist and wheel with `python -m build`, installs the wheel with the extra serve, and then page, into a
new environment each, from whatever index pip is set up for, within requirements.lock. There a server answers
a client, and the page answers a program; torch must not be there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "results" / "wheel.json"
ARTIFACT = ROOT / "tests" / "golden" / "artifact-v1"
MOST_BYTES = 1.1e9
START_SECONDS = 300
SIZES = """
import importlib.metadata as m, json
def size(d):
    return sum(p.locate().stat().st_size for p in d.files or () if p.locate().is_file())
print(json.dumps({d.metadata["Name"]: size(d) for d in m.distributions()}))
"""
PICTURE = "from PIL import Image; Image.linear_gradient('L').resize((8, 8)).save('picture.png')"


def main() -> dict[str, Any]:
    """Builds, installs, asks; writes and returns what was found."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder / "tree")
        found: dict[str, Any] = {"wheel": wheel.name, "wheel_bytes": wheel.stat().st_size}
        for extra in ("serve", "page"):
            python = installed(folder / extra, wheel, extra)
            found[extra] = sizes(python) | asked(folder / extra, python, extra == "page")
            assert found[extra]["installed_bytes"] <= MOST_BYTES, found[extra]
    RESULT.write_text(json.dumps(found, indent=2) + "\n")
    return found


def build(tree: Path) -> Path:
    """The wheel of a copy of this tree, in dist/."""
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=ignored)
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", ROOT / "dist", tree], check=True)
    (wheel,) = (ROOT / "dist").glob("*.whl")
    return wheel


def installed(folder: Path, wheel: Path, extra: str) -> Path:
    """The Python of a new environment that has the wheel with an extra and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command = [folder / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "requirements.lock"]
    subprocess.run([*command, f"{wheel}[{extra}]"], check=True, env=clean(folder))
    return folder / "bin" / "python"


def clean(folder: Path) -> dict[str, str]:
    """An environment in which only what was installed is found."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"XDG_STATE_HOME": str(folder / "state")}


def sizes(python: Path) -> dict[str, Any]:
    """Bytes of everything that was installed, and of the largest parts."""
    said = subprocess.run([python, "-c", SIZES], check=True, capture_output=True, text=True).stdout
    found = {name: size for name, size in json.loads(said).items() if name not in ("pip", "setuptools")}
    assert "torch" not in found
    largest = dict(sorted(found.items(), key=lambda item: -item[1])[:8])
    return {"installed_bytes": sum(found.values()), "largest": largest}


def asked(folder: Path, python: Path, page: bool) -> dict[str, Any]:
    """The answer to one picture, from the command line or from the page."""
    privit = folder / "bin" / "privit"
    subprocess.run([python, "-c", PICTURE], cwd=folder, check=True)
    with contextlib.ExitStack() as stack:
        serving = [privit, "serve", ARTIFACT / "server", "--port", "0"]
        server = stack.enter_context(started(folder, serving, r"ready on (\S+:\d+)"))
        if page:
            paging = [privit, "page", ARTIFACT / "client", "--server", server, "--port", "0", "--no-browser"]
            address = stack.enter_context(started(folder, paging, r"(http://\S+)"))
            picture = (folder / "picture.png").read_bytes()
            with urllib.request.urlopen(address.replace("/?", "/predict?"), picture) as response:
                found = json.load(response)
        else:
            query = [
                privit,
                "query",
                "picture.png",
                "--model",
                ARTIFACT / "client",
                "--server",
                server,
                "--json",
            ]
            run = subprocess.run(query, cwd=folder, env=clean(folder), check=True, capture_output=True)
            (found,) = json.loads(run.stdout)["predictions"]
    return {"class_name": found["class_name"], "sent_bytes": found["sent_bytes"], "rounds": found["rounds"]}


@contextlib.contextmanager
def started(folder: Path, command: list[Any], ready: str) -> Iterator[str]:
    """What a command that serves says when it is ready; it ends with the `with`."""
    log = folder / f"{command[1]}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(list(map(str, command)), stderr=output, cwd=folder, env=clean(folder))
    try:
        end = time.monotonic() + START_SECONDS
        while not (said := re.search(ready, log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        yield said[1]
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))

"""A run is a folder: config.json, metrics.jsonl, result.json, weights, plan and a checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from privit.earlier import in_todays_names
from privit.errors import RequestError, WorkError
from privit.locks import LOCK_FILE, FolderLock, lock_folder

LIBRARIES = ("privit", "torch", "numpy", "accelerate", "timm", "safetensors")


@dataclass(frozen=True)
class Run:
    """An open run folder; `description` is what config.json says.

    While it is worked on, `lock` keeps other commands out.
    """

    folder: Path
    description: dict[str, Any]
    lock: FolderLock | None = field(default=None, repr=False, compare=False)

    @property
    def stage(self) -> str:
        """teacher, search, matching or finetune."""
        return str(self.description["stage"])

    @property
    def identity(self) -> str:
        """sha256 of what was asked for; a checkpoint carries it."""
        return identity(self.description)

    def result(self) -> dict[str, Any] | None:
        """What result.json says, or None while the run is not finished."""
        path = self.folder / "result.json"
        return read_json(path) if path.is_file() else None

    def metrics(self) -> list[dict[str, Any]]:
        """One record per finished epoch; a last line cut short by a kill is left out."""
        path = self.folder / "metrics.jsonl"
        records = []
        for line in path.read_text().splitlines() if path.is_file() else []:
            try:
                records.append(json.loads(line))
            except ValueError:
                break
        return records

    def add_metrics(self, record: Mapping[str, Any]) -> None:
        """Appends one epoch's record."""
        with writing(self.folder), (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    def keep_metrics(self, epochs: int) -> None:
        """Drops the records of epochs that have to be done again."""
        records = [record for record in self.metrics() if record["epoch"] <= epochs]
        write_text(self.folder / "metrics.jsonl", "".join(json.dumps(r) + "\n" for r in records))

    def finish(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Writes result.json; from then on the run is finished, and everyone may read it."""
        write_text(self.folder / "result.json", json.dumps(result, indent=2) + "\n")
        return dict(result)


def open_run(
    folder: Path,
    stage: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Any],
    threads: int,
    notes: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    locked: bool = True,
) -> Run:
    """A new run, or the one in `folder` if it was started by the same command; anything else is refused.

    `inputs` say what went in and are compared; `notes` (where it lay) are only written down. `defaults`
    stand for settings that the version which started the run did not know. An unfinished run is locked
    against other commands; of several processes of one command, one is `locked`.
    """
    folder = Path(folder)
    asked = {"stage": stage, "config": dict(config), "inputs": dict(inputs)}
    asked = json.loads(json.dumps(asked))
    path = folder / "config.json"
    if not path.is_file():
        _refuse_foreign_folder(folder)
    lock = None
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if locked and not (folder / "result.json").is_file():
            lock = lock_folder(folder, again=True)
    if path.is_file():
        found = read_json(path)
        _check_same(folder, found, asked, json.loads(json.dumps(dict(defaults or {}))))
        _warn_of_other_machine(found, threads)
        return Run(folder, found, lock)
    description = asked | {"notes": dict(notes or {}), "libraries": library_versions(), "threads": threads}
    write_text(path, json.dumps(description, indent=2) + "\n")
    return Run(folder, description, lock)


def _refuse_foreign_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file, but a run is a folder", "give another name")
    if folder.is_dir() and any(path.name != LOCK_FILE for path in folder.iterdir()):
        raise RequestError(
            f"{folder} has files in it, but no config.json: it is not a run", "give a new or empty folder"
        )


def load_run(folder: Path, *stages: str) -> Run:
    """A finished run of one of the `stages`; refuses anything else."""
    folder = Path(folder)
    path = folder / "config.json"
    if not path.is_file():
        raise RequestError(f"{folder} is not a run: it has no config.json", "give the folder of a run")
    run = Run(folder, read_json(path))
    if stages and run.stage not in stages:
        raise RequestError(
            f"{folder} is a {run.stage} run, but a {' or '.join(stages)} run is needed",
            "give that run's folder",
        )
    if run.result() is None:
        raise RequestError(
            f"{folder} is not finished: it has no result.json", f"start its {run.stage} command again"
        )
    return run


def identity(description: Mapping[str, Any]) -> str:
    """sha256 of stage, config and inputs."""
    asked = {key: description[key] for key in ("stage", "config", "inputs")}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that decide the bits of a result."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def write_text(path: Path, text: str) -> None:
    """Writes a file so that after a crash either the old or the new content is there."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Like `write_text`, for bytes."""
    temporary = path.with_name(path.name + ".partial")
    with writing(path.parent):
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes named arrays as safetensors, atomically."""
    write_bytes(path, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Reads what `write_arrays` wrote."""
    try:
        return dict(load_file(str(path)))
    except (SafetensorError, OSError) as error:
        raise RequestError(
            f"{path} is not readable: {error}", "start the run again in a new folder"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} is not readable JSON: {error}", "start a run in a new folder") from error
    if not isinstance(data, dict):
        raise RequestError(f"{path} does not hold a JSON object", "start a run in a new folder")
    return data


class writing:
    """Turns a failure to write below `folder` into an error that says what is kept."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise WorkError(
                f"cannot write to {self.folder}: {error.strerror or error}",
                "make room or permission there and start the same command again: "
                "it goes on from the last checkpoint",
            ) from error


def _check_same(
    folder: Path, found: Mapping[str, Any], asked: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    if any(key not in found for key in asked):
        raise RequestError(f"{folder}/config.json does not describe a run", "give a new or empty folder")
    if found["stage"] != asked["stage"]:
        raise RequestError(
            f"{folder} holds a {found['stage']} run, but {asked['stage']} was asked for",
            "give another folder",
        )
    settings = in_todays_names(found["stage"], found["config"])
    differences = [
        f"{name} is {old.get(name)!r} there, {new.get(name)!r} here"
        for old, new in (
            (found["inputs"], asked["inputs"]),
            ({**defaults, **settings}, asked["config"]),
        )
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    if differences:
        raise RequestError(
            f"{folder} holds a run with other settings: " + "; ".join(differences),
            "give another folder, or the same settings to go on",
        )


def _warn_of_other_machine(found: Mapping[str, Any], threads: int) -> None:
    now = {"threads": threads} | library_versions()
    then = {"threads": found.get("threads")} | dict(found.get("libraries", {}))
    changes = [f"{name} {then.get(name)} -> {now[name]}" for name in now if then.get(name) != now[name]]
    if changes:
        warnings.warn(
            f"this run was started with other versions or threads ({', '.join(changes)}): "
            "it goes on, but not bit for bit as it would have",
            stacklevel=3,
        )

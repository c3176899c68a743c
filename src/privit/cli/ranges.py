"""Ranges for a synthetic plan: measured on its random weights, or read from a file that bench wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from privit.artifact import Artifact, range_problems
from privit.cli.output import note
from privit.errors import RequestError
from privit.runs import write_text

RANDOM = "random"


def with_ranges(artifact: Artifact, asked: str, seed: int) -> Artifact:
    """The artifact with the ranges that `--ranges` asks for."""
    if asked == RANDOM:
        from privit.serve.measure.bench import with_random_ranges

        return with_random_ranges(artifact, seed)
    ranges = _read(Path(asked), artifact.spec.depth)
    notes = artifact.public.notes | {"ranges": f"read from {asked}"}
    return replace(artifact, public=replace(artifact.public, ranges=ranges, notes=notes))


def write_ranges(path: Path, ranges: Mapping[str, float]) -> None:
    """Writes what `--ranges` reads again."""
    if not ranges:
        raise RequestError("there are no ranges to write", f"measure some with --ranges {RANDOM}")
    write_text(path, json.dumps(ranges, indent=2) + "\n")
    note(f"wrote {path}")


def _read(path: Path, depth: int) -> dict[str, float]:
    hint = f"give {RANDOM}, or a file that `privit bench --write-ranges FILE` wrote for this model"
    try:
        found: Any = json.loads(path.read_text())
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:
        raise RequestError(f"{path} is not JSON: {error}", hint) from error
    if not isinstance(found, dict):
        raise RequestError(f"{path} does not hold a JSON object", hint)
    if not found:
        raise RequestError(f"{path} names no range", hint)
    if problems := range_problems(found):
        raise RequestError(f"{path}: {'; '.join(problems)}", hint)
    for name in found:
        layer = re.match(r"blocks\.(\d+)\.", name)
        if layer and int(layer[1]) >= depth:
            has = f"the model has {depth} layers, 0 to {depth - 1}"
            raise RequestError(f"{path}: {name} is about layer {layer[1]}, but {has}", hint)
    return {name: float(value) for name, value in found.items()}

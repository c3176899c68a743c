"""What makes the parties talk in a compiled program, layer by layer."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

from privit.artifact import Artifact, load_artifact
from privit.program.choices import batch_for
from privit.serve.compile.compile import CARRIED, Program, compile_program
from privit.serve.compile.listing import program_operations
from privit.serve.engine import protocols


def describe_program(artifact: Artifact | Path, protocol: str = protocols.DEFAULT) -> dict[str, Any]:
    """The hash of an artifact's program, its inputs and the costly operations of each layer.

    Protocols differ only in how products are cut.
    An operation stands with its sizes and how often it occurs; sums, and what only the server knows, are
    local and not listed.
    """
    found = artifact if isinstance(artifact, Artifact) else load_artifact(artifact)
    batch = batch_for(protocols.protocol(protocol).name, 1)
    program = compile_program(found.public, found.plan, segments=True, batch=batch)
    return {
        "code_hash": program.code_hash,
        "lines": program.code.count("\n"),
        "server_values": _values(program, "server"),
        "client_values": _values(program, "client"),
        "layers": _layers(program),
    }


def _values(program: Program, owner: str) -> int:
    return sum(math.prod(entry.shape) for entry in program.inputs if entry.owner == owner)


def _layers(program: Program) -> list[dict[str, Any]]:
    owners = {entry.name: entry.owner for entry in program.inputs} | {CARRIED: "shared"}
    layers = []
    for segment in program.segments:
        operations = program_operations(segment.code, [owners[name] for name in segment.inputs])
        counted = Counter((operation.name, operation.sizes) for operation in operations)
        rows = [
            {"operation": name, "sizes": list(sizes), "times": times}
            for (name, sizes), times in counted.items()
        ]
        layers.append({"name": segment.name, "operations": rows})
    return layers

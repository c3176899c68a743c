"""One party's engine: compiles the program from the public part, opens a session, answers queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import spu
from spu import libspu

from privit.artifact import load_artifact
from privit.errors import RequestError
from privit.program.choices import batch_for
from privit.program.graph import Graph
from privit.serve.compile.compile import (
    Program,
    client_values,
    compile_program,
    compiler_options_text,
    program_from_bytes,
    server_values,
)
from privit.serve.engine.engine_log import quiet_engine
from privit.serve.engine.protocols import CLIENT, HELPER, SERVER, protocol
from privit.serve.engine.shares import TravellingShare, blank_input, keep_input, split_input
from privit.serve.engine.warming import runs_parallel, warm_up_program
from privit.serve.wire.handshake import describe

RANKS = {"server": SERVER, "client": CLIENT, "helper": HELPER}
MESSAGE_LIMIT = 32 << 20
"""Longer engine messages are cut; brpc refuses bodies above 64 MiB."""


@dataclass(frozen=True)
class Addresses:
    """Where each rank is found: this party's own socket and, for the others, a socket of the tunnel."""

    sockets: tuple[Path, ...]
    session: str
    patience_seconds: float


class Engine:
    """A party in its own process; `role` is server, client or helper."""

    def __init__(
        self,
        folder: Path,
        protocol_name: str,
        role: str,
        log_file: Path,
        images: int = 1,
        compiled: bytes | None = None,
    ):
        quiet_engine(log_file)
        self.role, self.rank = role, RANKS[role]
        self.protocol = protocol(protocol_name)
        self.artifact = load_artifact(folder)
        if role == "server" and self.artifact.weights is None:
            raise RequestError(f"{folder} holds no weights", "serve the artifact's server/ folder")
        self.config = quiet(self.protocol.runtime_config())
        self._programs: dict[int, Program] = {}
        self.compile(images, compiled)

    def compile(self, images: int, compiled: bytes | None = None) -> None:
        """Makes the program for so many images the one that is run; what was compiled is kept.

        `compiled` is what another process of this party compiled from the same folder.
        """
        if images not in self._programs and compiled is not None:
            self._programs[images] = program_from_bytes(compiled)
        public, plan, batch = self.artifact.public, self.artifact.plan, batch_for(self.protocol.name, images)
        if images not in self._programs:
            self._programs[images] = compile_program(public, plan, batch=batch)
        self.program, self.images = self._programs[images], images
        self.graph = Graph.of(public, plan, None, batch)

    def description(self) -> dict[str, str]:
        """What the handshake compares."""
        return describe(
            self.artifact,
            self.protocol.name,
            self.program.code_hash,
            self.config.SerializeToString(),
            compiler_options_text(),
            self.images,
        )

    def open(self, addresses: Addresses) -> None:
        """Links up with the other parties, sets the engine up and places the server's weights."""
        self.link = _make_link(addresses, self.rank)
        self.io = spu.Io(self.protocol.parties, self.config)
        self.runtime = spu.Runtime(self.link, self.config)
        warm_up(self)
        values: dict[str, np.ndarray] = {}
        if self.role == "server":
            assert self.artifact.weights is not None
            values = server_values(self.artifact.public, self.artifact.plan, self.artifact.weights)
        self._place("server", values)
        self.link.barrier()

    def query(self, pixels: np.ndarray | None) -> np.ndarray | None:
        """Runs the program once; the client gives pixels and gets the answer, others nothing.

        Of one image (C, S, S) and (classes,), of a batch a row for each image.
        """
        values = client_values(self.artifact.public, pixels) if pixels is not None else {}
        self._place("client", values)
        self.runtime.run(self.program.executable)
        answer = self.runtime.get_var(self.program.output)
        if self.rank != CLIENT:
            self.link.send(CLIENT, TravellingShare.of(answer).to_bytes())
            return None
        shares = [
            answer if rank == CLIENT else TravellingShare.from_bytes(self.link.recv(rank)).to_engine()
            for rank in range(self.protocol.parties)
        ]
        return np.asarray(self.io.reconstruct(shares), np.float32)

    def close(self) -> None:
        """Stops the link."""
        self.link.stop_link()

    def _place(self, owner: str, values: dict[str, np.ndarray]) -> None:
        """Sets every input of one owner, in the program's order, on whichever side this is."""
        for item in self.program.inputs:
            if item.owner == owner:
                place_input(self, item.name, item.shape, RANKS[owner], values.get(item.name))


def place_input(
    engine: Engine, name: str, shape: tuple[int, ...], owner: int, value: np.ndarray | None
) -> None:
    """Sets one input: kept by its owner where the protocol allows it, split into random shares elsewhere."""
    if engine.rank == owner and (value is None or tuple(value.shape) != tuple(shape)):
        raise AssertionError(f"the program wants {name} of shape {shape}")
    if engine.protocol.owner_typed:
        if engine.rank == owner and value is not None:
            keep_input(engine.io, name, value, owner).hand_to(engine.runtime)
        else:
            blank_input(engine.io, name, shape, owner, engine.rank).hand_to(engine.runtime)
    elif engine.rank == owner and value is not None:
        mine, others = split_input(engine.io, name, value, engine.rank)
        for rank, share in others.items():
            engine.link.send(rank, share.to_bytes())
        mine.hand_to(engine.runtime)
    else:
        share = TravellingShare.from_bytes(engine.link.recv(owner))
        engine.runtime.set_var(name, share.to_engine())


def warm_up(engine: Engine) -> None:
    """Makes the engine exchange keys and set its transfers up now, on zeros, and not in the first query."""
    program = warm_up_program(runs_parallel(engine.graph))
    for item in program.inputs:
        owner = RANKS[item.owner]
        value = np.zeros(item.shape, np.float32) if engine.rank == owner else None
        place_input(engine, item.name, item.shape, owner, value)
    engine.runtime.run(program.executable)
    for name in (*(item.name for item in program.inputs), program.output):
        engine.runtime.del_var(name)


def quiet(config: Any) -> Any:
    """The configuration with every trace, profile and snapshot of the engine off."""
    for name in (
        "enable_action_trace",
        "enable_hal_profile",
        "enable_pphlo_profile",
        "enable_pphlo_trace",
        "enable_runtime_snapshot",
    ):
        setattr(config, name, False)
    config.snapshot_dump_dir = ""
    return config


def _make_link(addresses: Addresses, rank: int) -> Any:
    description = libspu.link.Desc()
    description.id = addresses.session
    names = list(RANKS)
    for name, path in zip(names, addresses.sockets, strict=False):
        description.add_party(name, f"unix:{path}")
    milliseconds = int(addresses.patience_seconds * 1000)
    description.recv_timeout_ms = description.http_timeout_ms = milliseconds
    description.http_max_payload_size = MESSAGE_LIMIT
    description.connect_retry_times, description.connect_retry_interval_ms = 600, 200
    return libspu.link.create_brpc(description, rank)

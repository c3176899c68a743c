"""The smallest model there is, and a server, with a helper where the protocol has one, that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from privit.artifact import Artifact, Preprocessing, Public, load_artifact, save_artifact
from privit.data.images import preprocess
from privit.plan import Plan, all_weight_shapes, plan_from_counts
from privit.serve.measure.private import clear_logits
from privit.serve.parties.client import Client, connect
from privit.serve.parties.limits import Limits
from privit.serve.parties.processes import LocalParty, local_helper, local_server
from privit.spec import vit_spec

CLASS_NAMES = tuple("abcdefghij")
TOLERANCE = 0.05
"""The largest logit error that the product allows."""


@dataclass(frozen=True)
class Served:
    """An artifact and the parties that run it; `helper` is there for aby3 only."""

    folder: Path
    artifact: Artifact
    server: LocalParty
    protocol: str = "cheetah"
    helper: LocalParty | None = None

    @property
    def client_folder(self) -> Path:
        """What a client holds."""
        return self.folder / "client"

    @property
    def way(self) -> dict[str, Any]:
        """Protocol and helper, as `connect` is told of them."""
        return {"protocol": self.protocol} | ({"helper": self.helper.address} if self.helper else {})

    @property
    def flags(self) -> list[str]:
        """Protocol and helper, as the command line is told of them."""
        return [word for name, value in self.way.items() for word in (f"--{name}", value)]

    @property
    def asking(self) -> list[str]:
        """What `privit query` needs beside images."""
        return ["--model", str(self.client_folder), "--server", self.server.address, *self.flags]

    def connect(self, **options: Any) -> Client:
        """An open session with these parties."""
        return connect(self.client_folder, self.server.address, **self.way, **options)

    @contextmanager
    def another(self, state: Path, limits: Limits | None = None, port: int = 0) -> Iterator[Served]:
        """Another server of the same model, with the same helper."""
        with local_server(self.folder, state, limits=limits, port=port, **self.way) as server:
            yield replace(self, server=server)


@contextmanager
def serving(
    folder: Path,
    state: Path,
    protocol: str = "cheetah",
    limits: Limits | None = None,
    certs: Mapping[str, Path] | None = None,
    port: int = 0,
) -> Iterator[Served]:
    """The parties of a protocol that run an artifact, with the certificates that `make_certs` gave.

    Opening a session takes four times as long with cheetah, the default, as with aby3, which is for tests of
    what all protocols share.
    """
    certs, limits = certs or {}, limits or Limits()
    with ExitStack() as stack:
        helper = None
        if protocol == "aby3":  # which gets the client's folder: a helper holds no weights
            running = local_helper(folder / "client", state / "helper", limits, certs.get("helper"))
            helper = stack.enter_context(running)
        at = helper and helper.address
        running = local_server(folder, state, protocol, limits, at, certs.get("server"), port)
        server = stack.enter_context(running)
        yield Served(folder, load_artifact(folder / "server"), server, protocol, helper)


def make_artifact(folder: Path, plan: Plan | None = None, seed: int = 0) -> Artifact:
    """Random weights for the smallest model, with one exact site of each kind unless a plan is given."""
    spec = vit_spec(8, 4, 8, 1, 2, 10, channels=1)
    plan = plan or plan_from_counts(spec, [1], [1])
    rng = np.random.default_rng(seed)
    shapes = all_weight_shapes(spec, plan)
    weights = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    public = Public(spec, Preprocessing(8, 1, (0.5,), (0.5,)), CLASS_NAMES, {}, {"data": "digits"})
    return save_artifact(folder, public, plan, weights)


def digit_like(seed: int) -> np.ndarray:
    """An 8 x 8 grey picture."""
    return np.random.default_rng(seed).integers(0, 256, (8, 8), dtype=np.uint8)


def children(pid: int) -> list[int]:
    """Processes that this process started, oldest first."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for listed in lists for child in listed.read_text().split())


def expected_logits(served: Served, picture: np.ndarray) -> np.ndarray:
    """What the program gives in the clear."""
    pixels = preprocess(Image.fromarray(picture), served.artifact.public.preprocessing)
    return clear_logits(served.artifact, pixels)


def check_answers(served: Served, client: Client, seed: int) -> None:
    """Asks one query and compares it with the clear."""
    answer = client.predict(digit_like(seed))
    np.testing.assert_allclose(answer.logits, expected_logits(served, digit_like(seed)), atol=TOLERANCE)

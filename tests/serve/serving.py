"""The smallest model there is, and a server that runs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privit.artifact import Artifact, Preprocessing, Public, save_artifact
from privit.plan import Plan, all_weight_shapes, plan_from_counts
from privit.serve.processes import LocalParty
from privit.spec import vit_spec

CLASS_NAMES = tuple("abcdefghij")


@dataclass(frozen=True)
class Served:
    """The smallest artifact and the server that runs it; `process` is alive as long as the tests are."""

    folder: Path
    artifact: Artifact
    server: LocalParty

    @property
    def client_folder(self) -> Path:
        """What a client holds."""
        return self.folder / "client"


def make_artifact(folder: Path, plan: Plan | None = None, seed: int = 0) -> Artifact:
    """Random weights for the smallest model, with a few exact sites unless another plan is given."""
    spec = vit_spec(8, 2, 16, 2, 2, 10, channels=1)
    plan = plan or plan_from_counts(spec, [1, 0], [2, 0])
    rng = np.random.default_rng(seed)
    shapes = all_weight_shapes(spec, plan)
    weights = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    public = Public(spec, Preprocessing(8, 1, (0.5,), (0.5,)), CLASS_NAMES, {}, {"data": "digits"})
    return save_artifact(folder, public, plan, weights)


def digit_like(seed: int) -> np.ndarray:
    """An 8 x 8 grey picture."""
    return np.random.default_rng(seed).integers(0, 256, (8, 8), dtype=np.uint8)

"""How the learning rate and the penalties move; numbers in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from privit.config import Descent, TrainConfig


def learning_rate_factor(config: TrainConfig, progress: float) -> float:
    """What the learning rate is multiplied by after `progress` epochs (a fraction counts steps)."""
    if config.schedule != "constant" and progress < config.warmup_epochs:
        return (progress + 1e-3) / config.warmup_epochs
    if config.schedule == "step":
        return float(config.decay ** (int(progress) // config.decay_epochs))
    if config.schedule == "cosine":
        length = max(config.epochs - config.warmup_epochs, 1)
        done = min((progress - config.warmup_epochs) / length, 1.0)
        return 0.5 * (1 + math.cos(math.pi * done))
    return 1.0


@dataclass(frozen=True)
class Penalty:
    """The penalty of one kind and the counts that decide whether it grows."""

    value: float
    lowest: int


def start_penalty(descent: Descent, sites: int) -> Penalty:
    """Where a search begins: every site is active."""
    return Penalty(descent.penalty, sites)


def next_penalty(penalty: Penalty, count: int, descent: Descent, sites: int, may_grow: bool) -> Penalty:
    """The penalty after an epoch that ended with `count` active sites (Algorithm 1, the two first `if`s)."""
    wanted = descent.min_drop * sites if isinstance(descent.min_drop, float) else descent.min_drop
    too_slow = penalty.lowest - count < wanted
    value = penalty.value * descent.growth if may_grow and too_slow else penalty.value
    return Penalty(value, min(penalty.lowest, count))


def penalty_to_json(penalties: Mapping[str, Penalty]) -> dict[str, dict[str, float]]:
    """Plain data for a checkpoint."""
    return {kind: vars(penalty).copy() for kind, penalty in penalties.items()}


def penalty_from_json(data: Mapping[str, Mapping[str, float]]) -> dict[str, Penalty]:
    """What `penalty_to_json` described."""
    return {kind: Penalty(float(p["value"]), int(p["lowest"])) for kind, p in data.items()}

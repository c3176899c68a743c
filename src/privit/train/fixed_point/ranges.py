"""How large values get on validation data, and whether the engine can hold them.

SPU computes in the ring of 64-bit integers with 18 fraction bits (FM64). What follows from that, and was
confirmed on the 0.9.5 wheel for SEMI2K, ABY3 and CHEETAH alike:

- A product of two numbers carries 2 x 18 fraction bits until it is truncated, and truncation needs two of
  the 64 bits for itself, so products, and the sums of products in a matrix product, must stay below
  2^(64 - 36 - 2) = 2^26. At 2^26.5 a fifth of the products come out wrong.
- rsqrt and reciprocal normalise their argument within 2 x 18 bits around the point, one of them for the
  sign: it must stay below 2^17. At 2^17.9 rsqrt returns 0. A LayerNorm's rsqrt takes the sum of squares,
  which is the variance times the width.

Unseen images may reach further than validation images do, so a model whose values double must still fit;
squares and products then grow fourfold, and a quarter of each limit is what validation data may use.

Keys of the ranges, each over all validation images:

    blocks.{i}.{place}             largest absolute value; places are residual1, qkv, score, attention, mixed,
                                   update1, residual2, hidden, activated, update2
    blocks.{i}.squared_score, blocks.{i}.squared_hidden
    those that shape the program   variances of LayerNorms and scores of exact rows (`program/ranges.py`)
    blocks.{i}.denominator         of normalised operators, which divide by a sum over the row
    residual, logits               largest absolute value at the end
    activation, score, squared_score, variance   the largest over all layers

With class-token pooling only that token is read behind the last block's attention, and only it counts there.
Where the mean over tokens stands before the last LayerNorm, `norm` is that of their sum, as when serving.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privit.errors import RequestError
from privit.plan import Plan
from privit.program.graph import Graph
from privit.program.ranges import (
    FRACTION_BITS,
    RING_BITS,
    WATCHED_MARGINS,
    ScoreKeys,
    score_keys,
    variance_keys,
)
from privit.spec import Spec
from privit.train.student.activations import NUMERATORS
from privit.train.student.vit import Student

PRODUCT_LIMIT = 2.0 ** (RING_BITS - 2 * FRACTION_BITS - 2)
INVERSE_LIMIT = 2.0 ** (FRACTION_BITS - 1)
RESERVE = 4.0
"""How much larger than on validation data a value may get on an unseen image."""

SHOWN_PROBLEMS = 12
LARGEST_EXPONENT = 700.0

_ACTIVATIONS = {
    "residual",
    "residual1",
    "residual2",
    "qkv",
    "mixed",
    "hidden",
    "activated",
    "update1",
    "update2",
}
_BEHIND_ATTENTION = {"attention", "mixed", "update1", "residual2", "hidden", "activated", "update2"}


def measure_ranges(student: Student, images: np.ndarray | Tensor, batch_size: int = 64) -> dict[str, float]:
    """The ranges of a student on images (n, C, S, S), under the keys above, for a program with a guard."""
    recorder = RangeRecorder(student.spec, student.plan())
    device = next(student.parameters()).device
    training = student.training
    student.eval()
    with torch.no_grad():
        for start in range(0, len(images), batch_size):
            batch = torch.as_tensor(np.asarray(images[start : start + batch_size]), dtype=torch.float32)
            recorder("logits", student(batch.to(device), recorder))
    student.train(training)
    return recorder.ranges | _summary(recorder.ranges) | WATCHED_MARGINS


def limit_of(name: str, spec: Spec) -> float:
    """What the engine can hold under a key, before the reserve is taken off."""
    place = name.rpartition(".")[2]
    if place in ("variance", "variance_high"):
        # The sum over all tokens is only ever squared; its rsqrt runs on a measured, narrow range.
        summed = name.startswith("norm.") and _sums_before_norm(spec)
        return (PRODUCT_LIMIT if summed else INVERSE_LIMIT) / spec.width
    if ".softmax." in name:
        # These choose between a short softmax and the engine's own, which takes any row.
        return math.inf
    return INVERSE_LIMIT if place == "denominator" else PRODUCT_LIMIT


@dataclass(frozen=True)
class Reached:
    """How far the values of a place got, and how far they may: a limit less the reserve."""

    place: str
    reached: float
    allowed: float

    def __str__(self) -> str:
        return f"{self.place} reaches {self.reached:.4g}, at most {self.allowed:.4g} is allowed"


def nearest_limit(ranges: Mapping[str, float], spec: Spec) -> Reached:
    """The place whose values come nearest to what the engine can hold, as a share of it."""
    return max(_reached(ranges, spec), key=lambda found: found.reached / found.allowed)


def _reached(ranges: Mapping[str, float], spec: Spec) -> list[Reached]:
    return [Reached(name, value, limit_of(name, spec) / RESERVE) for name, value in sorted(ranges.items())]


def check_ranges(ranges: dict[str, float], spec: Spec) -> None:
    """Refuses ranges beyond the engine's headroom, naming the places."""
    # Not written as reached > allowed, so that a NaN is refused too.
    wrong = [str(found) for found in _reached(ranges, spec) if not found.reached <= found.allowed]
    if wrong:
        lines = wrong[:SHOWN_PROBLEMS]
        if len(wrong) > SHOWN_PROBLEMS:
            lines.append(f"and {len(wrong) - SHOWN_PROBLEMS} more")
        raise RequestError(
            "the model's values do not fit the engine's fixed-point numbers:\n"
            + "\n".join(f"  - {line}" for line in lines),
            "fine-tune longer or with weight decay, keep more exact softmax rows in these layers, "
            "or take a stand-in whose values stay small (scale_attn)",
        )


class RangeRecorder:
    """Collects the ranges from values as they pass; given to the student as its `observe`."""

    def __init__(self, spec: Spec, plan: Plan):
        self.spec, self.plan, self.graph = spec, plan, Graph(spec, plan)
        self.ranges: dict[str, float] = {}

    def __call__(self, name: str, value: Tensor) -> None:
        """Notes one value (B, ...) that the student passed on its way."""
        block, _, place = name.rpartition(".")
        value = value.float()
        if not block:
            self._largest(name, value)
            if place == "residual":
                self._variance("norm", self._before_last_norm(value))
            return
        layer = int(block.rpartition(".")[2])
        value = self._read(layer, place, value)
        self._largest(name, value)
        if place in ("score", "hidden"):
            self._largest(f"{block}.squared_{place}", value.square())
        if place in ("residual1", "residual2"):
            self._variance(f"{block}.norm{place[-1]}", value)
        if place == "score":
            self._rows(block, layer, value)

    def _read(self, layer: int, place: str, value: Tensor) -> Tensor:
        """The part that anything reads: behind the last attention, only what is pooled."""
        if layer < self.spec.depth - 1 or self.spec.pooling != "cls":
            return value
        if place in ("score", "attention", "mixed"):
            return value[:, :, :1]
        return value[:, :1] if place in _BEHIND_ATTENTION else value

    def _before_last_norm(self, x: Tensor) -> Tensor:
        if self.spec.pooling == "cls":
            return x[:, :1]
        x = x[:, int(self.spec.class_token) :]
        return x.sum(dim=1) if _sums_before_norm(self.spec) else x

    def _rows(self, block: str, layer: int, scores: Tensor) -> None:
        """Scores (B, heads, rows, N): what the operators that divide by a sum meet in their rows."""
        ids = self.plan.layers["softmax"][layer]
        rows = np.broadcast_to(
            ids.reshape(ids.shape + (1,) * (2 - ids.ndim)), (scores.shape[1], self.spec.tokens_in(layer))
        )
        for entry in self.plan.operators("softmax", layer):
            mask = torch.from_numpy(rows[:, : scores.shape[2]] == entry.id)
            if entry.family != "normalised" or not mask.any():
                continue
            chosen = scores[:, mask.to(scores.device)]  # (B, chosen rows, N)
            if entry.name == "softmax":
                self._exact_rows(score_keys(block), chosen)
            else:
                total = NUMERATORS[entry.name](chosen).sum(dim=-1) + entry.epsilon
                self._largest(f"{block}.denominator", total)

    def _exact_rows(self, keys: ScoreKeys, scores: Tensor) -> None:
        centred = scores - scores.mean(dim=-1, keepdim=True)
        self._raise(keys.drop, -centred.min())
        self._raise(keys.peak, centred.max())
        # Double precision holds exp up to LARGEST_EXPONENT; beyond, the row is no short form's case.
        powers = centred.double().clamp(max=LARGEST_EXPONENT).exp()
        self._raise(keys.mean_exp, powers.mean(dim=-1).max())

    def _variance(self, norm: str, value: Tensor) -> None:
        # A LayerNorm that computes no variance has none to hold.
        if not self.graph.norm(norm).own:
            return
        variance, (low, high) = value.var(dim=-1, correction=0), variance_keys(norm)
        self._raise(high, variance.max())
        self.ranges[low] = float(np.minimum(self.ranges.get(low, np.inf), float(variance.min())))

    def _largest(self, name: str, value: Tensor) -> None:
        self._raise(name, value.abs().max())

    def _raise(self, name: str, value: Tensor) -> None:
        # numpy's maximum keeps a NaN, which must not be lost.
        self.ranges[name] = float(np.maximum(self.ranges.get(name, -np.inf), float(value)))


def _sums_before_norm(spec: Spec) -> bool:
    return spec.pooling == "mean" and spec.final_norm == "after_pool"


def _summary(ranges: dict[str, float]) -> dict[str, float]:
    def over(places: set[str], under: str = "") -> float:
        found = [v for k, v in ranges.items() if k.rpartition(".")[2] in places and k.startswith(under)]
        # No LayerNorm of a block may compute a variance.
        return float(np.max(found, initial=0.0))

    return {
        "activation": over(_ACTIVATIONS),
        "score": over({"score"}),
        "squared_score": over({"squared_score"}),
        "variance": over({"variance_high"}, under="blocks."),
    }

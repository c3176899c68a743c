"""How large values get on validation data, and whether the engine can hold them.

SPU computes in the ring of 64-bit integers with 18 fraction bits (FM64). What follows from that, and was
confirmed on the 0.9.5 wheel for SEMI2K, ABY3 and CHEETAH alike:

- A product of two numbers carries 2 x 18 fraction bits until it is truncated, and truncation needs two of
  the 64 bits for itself, so products, and the sums of products in a matrix product, must stay below
  2^(64 - 36 - 2) = 2^26. At 2^26.5 a fifth of the products come out wrong.
- rsqrt and reciprocal normalise their argument within 2 x 18 bits around the point, one of them for the
  sign: it must stay below 2^17. At 2^17.9 rsqrt returns 0.

Unseen images may reach further than validation images do, so a model whose values double must still fit;
squares and products then grow fourfold, and a quarter of each limit is what validation data may use.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from privit.errors import RequestError
from privit.train.activations import RELU_SOFTMAX_EPSILON, TWO_QUAD_SHIFT
from privit.train.vit import Student

RING_BITS = 64
FRACTION_BITS = 18
PRODUCT_LIMIT = 2.0 ** (RING_BITS - 2 * FRACTION_BITS - 2)
INVERSE_LIMIT = 2.0 ** (FRACTION_BITS - 1)
RESERVE = 4.0
"""How much larger than on validation data a value may get on an unseen image."""

SUMMARY = ("activation", "score", "squared_score", "variance")
"""The largest of each over all layers is recorded under these names as well."""

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


def measure_ranges(student: Student, images: np.ndarray | Tensor, batch_size: int = 64) -> dict[str, float]:
    """The largest absolute value at each named place of the student over all images.

    Names: `blocks.{i}.{place}` with places qkv, score, squared_score, attention, mixed, update1, update2,
    residual1, residual2, variance1, variance2, hidden, squared_hidden, activated, and where a kept operator
    divides, denominator; `residual`, `variance` and `logits` for the end; and the names of `SUMMARY`.
    `least_variance1` and `least_variance2` are the smallest variances.
    """
    largest: dict[str, float] = {}
    plan = student.plan()
    operators = {
        f"blocks.{i}.": {o.name for o in plan.operators("softmax", i)} for i in range(student.spec.depth)
    }

    def observe(name: str, value: Tensor) -> None:
        for place, found in _derived(name, value.float(), operators):
            # numpy's minimum and maximum keep a NaN, which must not be lost.
            keep = np.minimum if "least_" in place else np.maximum
            largest[place] = float(keep(largest.get(place, found), found))

    device = next(student.parameters()).device
    training = student.training
    student.eval()
    with torch.no_grad():
        for start in range(0, len(images), batch_size):
            batch = torch.as_tensor(np.asarray(images[start : start + batch_size]), dtype=torch.float32)
            observe("logits", student(batch.to(device), observe))
    student.train(training)
    return largest | _summary(largest)


def limit_of(name: str, width: int) -> float:
    """What the engine can hold at a place, before the reserve is taken off; `width` is the token width."""
    place = name.rpartition(".")[2]
    if place.startswith("variance"):
        # The squares are summed over the width before they are divided by it.
        return min(INVERSE_LIMIT, PRODUCT_LIMIT / width)
    return INVERSE_LIMIT if place == "denominator" else PRODUCT_LIMIT


def check_ranges(ranges: dict[str, float], width: int) -> None:
    """Refuses ranges beyond the engine's headroom, naming every place that is."""
    wrong = []
    for name, value in sorted(ranges.items()):
        allowed = limit_of(name, width) / RESERVE
        if not value <= allowed and "least_" not in name:
            wrong.append(f"{name} reaches {value:.4g}, at most {allowed:.4g} is allowed")
    if wrong:
        shown = "\n".join(f"  - {line}" for line in wrong[:12])
        more = f"\n  - and {len(wrong) - 12} more" if len(wrong) > 12 else ""
        raise RequestError(
            f"the model's values do not fit the engine's fixed-point numbers:\n{shown}{more}",
            "fine-tune longer or with weight decay, keep more exact softmax rows in these layers, "
            "or take a stand-in whose values stay small (scale_attn)",
        )


def _derived(name: str, value: Tensor, operators: dict[str, set[str]]) -> Iterator[tuple[str, float]]:
    """The observed place and those computed from it, with their largest (or least) absolute values."""
    prefix, _, place = name.rpartition(".")
    at = f"{prefix}." if prefix else ""
    largest = float(value.abs().max())
    yield name, largest
    if place in ("score", "hidden"):
        yield f"{at}squared_{place}", largest**2
    if place.startswith("residual"):
        number = place.removeprefix("residual")
        variance = value.var(dim=-1, correction=0)
        yield f"{at}variance{number}", float(variance.max())
        yield f"{at}least_variance{number}", float(variance.min())
    if place == "score" and "relu_softmax" in operators[at]:
        yield f"{at}denominator", float(value.relu().sum(dim=-1).max()) + RELU_SOFTMAX_EPSILON
    if place == "score" and "two_quad" in operators[at]:
        yield f"{at}denominator", float((value + TWO_QUAD_SHIFT).square().sum(dim=-1).max())


def _summary(largest: dict[str, float]) -> dict[str, float]:
    def over(wanted: set[str]) -> float:
        return float(np.max([v for name, v in largest.items() if name.rpartition(".")[2] in wanted]))

    return {
        "activation": over(_ACTIVATIONS),
        "score": over({"score"}),
        "squared_score": over({"squared_score"}),
        "variance": over({"variance", "variance1", "variance2"}),
    }

"""Which pool a budget in cost is best spent with: before which block, and to how many patches.

Every block and every smaller square grid is a candidate. What its plan loses is first foreseen: the loss of
the pool alone, measured in the untouched model, and what the stand-ins of the best plan for the budget lose,
the losses of patches that are mixed added up. The few candidates that promise most are then fitted and
measured, as is the model without a pool, and the one whose prediction moves least from the teacher's wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from privit.cost.budgets.ladder import Ladder, Losses, make_ladder
from privit.cost.budgets.price import Price
from privit.cost.budgets.pricing import Pricer
from privit.errors import BudgetError
from privit.plan import Plan
from privit.spec import KINDS, Granularity, Spec, with_tokens
from privit.train.fitting.choose import divergence
from privit.train.stages import Model
from privit.train.student.norms import averaging
from privit.train.student.vit import Student

FINALISTS = 3
"""So many of the candidates that promise most are fitted and measured."""


@dataclass(frozen=True)
class Tried:
    """A number of tokens in each block, and what the best plan for the budget costs and loses with it.

    `foreseen` and `measured` are nats of divergence from the teacher's prediction, per image; only some
    candidates are measured.
    """

    tokens: tuple[int, ...]
    cost: float
    foreseen: float
    measured: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data for result.json."""
        return {**vars(self), "tokens": list(self.tokens)}


def candidates(spec: Spec) -> Iterator[tuple[int, ...]]:
    """Tokens in each block: as they are, then one pool before each block but the first, to square grids."""
    now, first = tuple(spec.tokens_in(i) for i in range(spec.depth)), int(spec.class_token)
    yield now
    for block in range(1, spec.depth):
        for side in range(_largest_side(spec, block), 0, -1):
            yield tuple(min(count, side**2 + first) if i >= block else count for i, count in enumerate(now))


def _largest_side(spec: Spec, block: int) -> int:
    """Of the square grids with fewer patches than the block has; 0 if there is none."""
    return math.isqrt(spec.tokens_in(block) - int(spec.class_token) - 1)


def choose_tokens(
    teacher: Model,
    granularity: Granularity,
    options: Mapping[str, tuple[str, ...]],
    losses: Losses,
    ranges: Mapping[str, float],
    price: Price,
    budget: float,
    pixels: np.ndarray,
    fitted: Callable[[Model, Plan], Student],
) -> list[Tried]:
    """The candidates that the budget pays for, the best first: those that were measured, then the others.

    `losses` and `ranges` are the untouched teacher's, `fitted` gives the student of a plan of a pooled model.
    """
    logits = _logits(teacher.student(), pixels)
    found: list[tuple[Tried, Model, Plan]] = []
    refused: list[BudgetError] = []
    for tokens in candidates(teacher.subject.spec):
        model = teacher.with_tokens(tokens)
        ladder = _ladder(model, teacher, granularity, options, losses, price, ranges)
        try:
            index = ladder.index_for(budget)
        except BudgetError as error:
            refused.append(error)
            continue
        pooled = divergence(logits, _logits(model.student(), pixels)) / len(pixels)
        tried = Tried(tokens, ladder.cost(index), pooled + _lost(ladder, index))
        found.append((tried, model, ladder.plan(index)))
    if not found:
        raise refused[0]
    found.sort(key=lambda entry: entry[0].foreseen)
    whole = [entry for entry in found[FINALISTS:] if entry[1].subject.spec == teacher.subject.spec]
    measured = [
        replace(tried, measured=divergence(logits, _logits(fitted(model, plan), pixels)) / len(pixels))
        for tried, model, plan in found[:FINALISTS] + whole
    ]
    measured.sort(key=lambda tried: float(tried.measured or 0.0))
    known = {tried.tokens for tried in measured}
    return measured + [tried for tried, _, _ in found if tried.tokens not in known]


def _ladder(
    model: Model,
    teacher: Model,
    granularity: Granularity,
    options: Mapping[str, tuple[str, ...]],
    losses: Losses,
    price: Price,
    ranges: Mapping[str, float],
) -> Ladder:
    spec = model.subject.spec
    mixed = pooled_losses(teacher.subject.spec, spec, granularity, losses)
    return make_ladder(Pricer(spec, price, ranges), granularity, options, mixed, thorough=False)


def _lost(ladder: Ladder, index: int) -> float:
    """What the stand-ins of a rung's plan lose together."""
    whole = sum(group.loss(group.start) for group in ladder.groups)
    return max(whole - ladder.rungs[index].avoided, 0.0)


def pooled_losses(
    spec: Spec, pooled: Spec, granularity: Granularity, losses: Losses
) -> dict[str, list[np.ndarray]]:
    """The losses of a model's sites for the same model with pools: those of mixed patches are added up."""
    by_token = {
        "gelu": {"token": 1, "element": 1}.get(granularity.gelu),
        "softmax": {"row": 2}.get(granularity.softmax),
    }
    found: dict[str, list[np.ndarray]] = {kind: list(losses[kind]) for kind in KINDS}
    for layer in range(spec.depth):
        before, after = spec.tokens_in(layer), pooled.tokens_in(layer)
        if before == after:
            continue
        shares = _shares(before, after, int(spec.class_token))
        for kind, axis in by_token.items():
            if axis is not None:
                moved = np.moveaxis(losses[kind][layer], axis, -1) @ shares.T
                found[kind][layer] = np.moveaxis(moved, -1, axis)
    return found


def _shares(before: int, after: int, first: int) -> np.ndarray:
    """Which share of each token's loss falls to each of fewer (after, before); the class token keeps all."""
    matrix = averaging(before - first, after - first).double().numpy()
    shares = np.zeros((after, before))
    shares[:first, :first] = 1.0
    shares[first:, first:] = matrix / matrix.sum(axis=0, keepdims=True)
    return shares


@torch.no_grad()
def _logits(student: Student, pixels: np.ndarray, batch: int = 64) -> torch.Tensor:
    images = torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32))
    return torch.cat([student.eval()(part) for part in images.split(batch)])


def smallest_floor(spec: Spec, floor: Callable[[Spec], None]) -> None:
    """Raises what `floor` says of a budget if it refuses every candidate; the nearest one's words."""
    refused: list[BudgetError] = []
    for tokens in candidates(spec):
        try:
            floor(with_tokens(spec, tokens))
            return
        except BudgetError as error:
            refused.append(error)
    # One patch from the second block on is the cheapest of all: the last candidate of that block.
    raise refused[_largest_side(spec, 1) if spec.depth > 1 else 0]

"""What each attention head computes: which rows run which operator, and which scales the server folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privit.operators import BY_ID, BY_NAME, UNSCORED, Operator

Form = Literal["scores", "linear", "constant", "static"]
Key = tuple[int, str]
"""A head and an operator: the rows of that head that run it."""


@dataclass(frozen=True)
class Head:
    """One attention head: which rows run which operator, and whose scale its q weights carry.

    `folded` names the operator whose scale the server folds into q; the other rows make up for it.
    """

    form: Form
    groups: tuple[tuple[str, np.ndarray], ...]
    folded: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The operators that occur."""
        return tuple(name for name, _ in self.groups)

    @property
    def reads(self) -> bool:
        """Whether it has a q and a k at all."""
        return self.form not in UNSCORED

    @property
    def quadratic(self) -> str | None:
        """The fitted square, if one occurs: the values carry its sign, which other rows must undo."""
        return next((name for name in self.names if _fitted(name, "square")), None)

    @property
    def scored(self) -> dict[str, np.ndarray]:
        """The rows whose scores exist, by operator."""
        if self.form != "scores":
            return {}
        return {name: rows for name, rows in self.groups if BY_NAME[name].family not in UNSCORED}


def head_of(ids: np.ndarray, fold: bool, skips_scores: Callable[[], bool]) -> Head:
    """What a head with these operators on its rows (rows,) computes."""
    entries = present(ids)
    groups = tuple((entry.name, np.flatnonzero(ids == entry.id)) for entry in entries)
    families = {entry.family for entry in entries}
    if families <= set(UNSCORED):
        return Head("static" if "static" in families else "constant", groups)
    if families == {"linear"} and len(entries) == 1:
        return Head("linear" if skips_scores() else "scores", groups, entries[0].name)
    unfolded = Head("scores", groups)
    if not fold:
        return unfolded
    if unfolded.quadratic:
        return Head("scores", groups, unfolded.quadratic)
    # The fewer rows make up for what is folded for the most.
    sizes = {
        entry.name: rows.size for entry, (_, rows) in zip(entries, groups, strict=True) if _public(entry)
    }
    return Head("scores", groups, max(sizes, key=lambda name: sizes[name], default=None))


def present(ids: np.ndarray) -> list[Operator]:
    """The operators that occur, by id."""
    return [BY_ID[int(i)] for i in np.flatnonzero(np.bincount(ids.reshape(-1), minlength=1))]


def public_factors(heads: Sequence[Head], scale: Callable[[str], float]) -> dict[Key, float]:
    """By what public number q rows are multiplied whose own scale is not the one that their head folds."""
    factors = {
        (index, name): scale(name) / (scale(head.folded) if head.folded else 1.0)
        for index, head in enumerate(heads)
        for name in head.scored
    }
    return {key: factor for key, factor in factors.items() if factor != 1.0}


def secret_factors(heads: Sequence[Head]) -> dict[Key, tuple[str, ...]]:
    """By which secret numbers of their head q rows are multiplied, one after the other."""
    factors: dict[Key, tuple[str, ...]] = {}
    for index, head in enumerate(heads):
        for name in head.scored:
            if name == head.folded:
                continue
            # A linear row in a head that is folded for a quadratic needs both.
            needed = ["unscale"] if head.folded and head.folded == head.quadratic else []
            if BY_NAME[name].fitted:
                needed.append("linear_scale" if BY_NAME[name].family == "linear" else "scale")
            if needed:
                factors[index, name] = tuple(needed)
    return factors


def rows_of(heads: Sequence[Head], chosen: Callable[[Operator], bool]) -> int:
    """How many scored rows run one of the chosen operators."""
    return sum(rows.size for head in heads for name, rows in head.scored.items() if chosen(BY_NAME[name]))


def _fitted(name: str, family: str) -> bool:
    return BY_NAME[name].fitted and BY_NAME[name].family == family


def _public(entry: Operator) -> bool:
    return not entry.fitted and entry.family not in UNSCORED

"""The pieces from which the list of a program's operations is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from privit.operators import BY_ID
from privit.plan import Plan
from privit.spec import Spec

REWRITES = frozenset(
    (
        "fold",
        "fused_qkv",
        "merge_mlp",
        "class_token_last",
        "linear_attention",
        "slices",
        "late_reciprocal",
        "ranges",
    )
)
"""Names of the rewrites of `serve/model/rewrites.py`, all on unless a comparison turns them off."""

NORMALISED = ("softmax", "relu_softmax", "two_quad")
CONSTANT = ("uniform_attn", "constant_attn")
LINEAR = ("scale_attn", "linear_attn")
SQUARE = ("squared_attn", "quadratic_attn")


@dataclass(frozen=True)
class Operation:
    """One call of the engine.

    The name says what meets what: plain names are of two shared values, `_weight` of a shared value and
    the server's own, `_input` of the client's own and the server's own, `_public` of a shared value and a
    constant, `_bit` of a shared value and a shared bit. `matmul*` sizes are (rows, inner, columns), `max`
    sizes are (rows, columns), all others (elements,).
    """

    name: str
    sizes: tuple[int, ...]


@dataclass
class Recorder:
    """Collects operations in the order in which the program runs them."""

    operations: list[Operation] = field(default_factory=list)

    def __call__(self, name: str, *sizes: int) -> None:
        """Notes one operation; one without elements costs nothing."""
        if all(sizes):
            self.operations.append(Operation(name, sizes))


@dataclass(frozen=True)
class Subject:
    """The program whose operations are listed."""

    spec: Spec
    plan: Plan
    rewrites: frozenset[str] = REWRITES
    ranges: Mapping[str, float] = field(default_factory=dict)

    def only_class_token(self, layer: int) -> bool:
        """Whether nothing but the class token leaves this block."""
        last = layer == self.spec.depth - 1
        return "class_token_last" in self.rewrites and last and self.spec.pooling == "cls"

    def reads_one_row(self, layer: int) -> bool:
        """Whether the block's attention is that of `serve/model/class_token.py`."""
        return self.only_class_token(layer) and "fold" in self.rewrites

    def rows(self, layer: int) -> int:
        """How many tokens leave this block."""
        return 1 if self.only_class_token(layer) else self.spec.tokens

    def head_rows(self, layer: int) -> list[dict[str, int]]:
        """For each head, operator to how many of its rows run it, by operator id."""
        ids = self.plan.layers["softmax"][layer]
        heads, tokens = self.spec.blocks[layer].heads, self.spec.tokens
        full = np.broadcast_to(ids[:, None] if ids.ndim == 1 else ids, (heads, tokens))
        return [_named(row) for row in full[:, : self.rows(layer)]]

    def gelu_counts(self, layer: int) -> tuple[dict[str, int], bool]:
        """Operator to how many tokens or, where sites are elements, values; and whether they are."""
        ids = self.plan.layers["gelu"][layer]
        full = np.broadcast_to(ids, (self.spec.tokens,)) if ids.ndim == 0 else ids
        return _named(full[: self.rows(layer)].reshape(-1)), full.ndim == 2


def _named(ids: np.ndarray) -> dict[str, int]:
    counts = np.bincount(ids, minlength=1)
    return {BY_ID[int(i)].name: int(counts[i]) for i in np.flatnonzero(counts)}

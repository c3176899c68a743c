"""What is public about a program: sizes, plan, rewrites, ranges, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from privit.artifact import Public
from privit.operators import BY_ID, BY_NAME
from privit.plan import Plan
from privit.program.ranges import ScoreRange, score_range, variance_range
from privit.serve.model.approximations import ShortExp, ShortRoot, short_exp, short_root
from privit.serve.model.rewrites import Rewrites, linear_pays, merging_pays
from privit.spec import Block, Spec

NORMALISED = ("softmax", "relu_softmax", "two_quad")
CONSTANT = ("uniform_attn", "constant_attn")
LINEAR = ("scale_attn", "linear_attn")
SQUARE = ("squared_attn", "quadratic_attn")
Form = Literal["scores", "linear", "constant"]

# A row's sum of exponentials is steered here, where fixed point resolves it and its reciprocal alike.
SUM_MIDDLE = 4.0


def sum_range(tokens: int, found: ScoreRange) -> tuple[float, float, float]:
    """A factor for the exponentials, and the range of a row's sum of them under that factor.

    The exponentials of a row of mean zero have a mean of at least 1 (Jensen).
    """
    low, high = float(tokens), tokens * found.mean_exp
    factor = float(f"{SUM_MIDDLE / math.sqrt(low * high):.6e}")
    return factor, low * factor, high * factor


def short_form(tokens: int, found: ScoreRange) -> ShortExp:
    """The short exp for rows of that many scores; q carries its scale."""
    return short_exp(found.low, found.high, sum_range(tokens, found)[0])


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
    def signed(self) -> bool:
        """Whether the values carry the sign of a fitted quadratic, which other rows must undo."""
        return "quadratic_attn" in self.names


@dataclass(frozen=True)
class MlpGroup:
    """Tokens of one MLP that share weights: which path they take and which operator each runs."""

    path: Literal["hidden", "merged", "square"]
    names: tuple[str, ...]
    tokens: tuple[np.ndarray, ...]

    @property
    def key(self) -> str:
        """Under which the group's weights are named."""
        return "hidden" if self.path == "hidden" else self.names[0]

    @property
    def all_tokens(self) -> np.ndarray:
        """The tokens of every operator, one after the other."""
        return np.concatenate(self.tokens)


@dataclass(frozen=True)
class Graph:
    """Everything public that shapes the program."""

    spec: Spec
    plan: Plan
    rewrites: Rewrites = field(default_factory=Rewrites)
    ranges: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, public: Public, plan: Plan, rewrites: Rewrites | None = None) -> Graph:
        """The graph of an artifact's public part."""
        return cls(public.spec, plan, rewrites or Rewrites(), public.ranges)

    def block(self, layer: int) -> Block:
        """Sizes of one block."""
        return self.spec.blocks[layer]

    def only_class_token(self, layer: int) -> bool:
        """Whether nothing but the class token of this block's output is ever read."""
        last = layer == self.spec.depth - 1
        return self.rewrites.class_token_last and last and self.spec.pooling == "cls"

    def reads_one_row(self, layer: int) -> bool:
        """Whether the block's attention is that of `class_token.py`."""
        return self.only_class_token(layer) and self.rewrites.fold

    def query_rows(self, layer: int) -> int:
        """How many tokens leave this block."""
        return 1 if self.only_class_token(layer) else self.spec.tokens

    def softmax_ids(self, layer: int) -> np.ndarray:
        """Operator ids (heads, rows that leave the block)."""
        ids = self.plan.layers["softmax"][layer]
        heads, tokens = self.block(layer).heads, self.spec.tokens
        full = np.broadcast_to(ids[:, None] if ids.ndim == 1 else ids, (heads, tokens))
        return full[:, : self.query_rows(layer)]

    def heads(self, layer: int) -> tuple[Head, ...]:
        """What each head computes."""
        return tuple(self._head(layer, ids) for ids in self.softmax_ids(layer))

    def _head(self, layer: int, ids: np.ndarray) -> Head:
        names = [BY_ID[int(i)].name for i in np.unique(ids)]
        groups = tuple((name, np.flatnonzero(ids == BY_NAME[name].id)) for name in names)
        if set(names) <= set(CONSTANT):
            return Head("constant", groups)
        if len(names) == 1 and names[0] in LINEAR:
            return Head("linear" if self._skips_scores(layer) else "scores", groups, names[0])
        if not self.rewrites.fold:
            return Head("scores", groups)
        if "quadratic_attn" in names:
            return Head("scores", groups, "quadratic_attn")
        # The fewer rows make up for what is folded for the most.
        foldable = [name for name, _ in groups if name in (*NORMALISED, "squared_attn", "scale_attn")]
        sizes = {name: rows.size for name, rows in groups}
        return Head("scores", groups, max(foldable, key=lambda name: sizes[name], default=None))

    def _skips_scores(self, layer: int) -> bool:
        head_width = self.spec.width // self.block(layer).heads
        pays = linear_pays(self.query_rows(layer), self.spec.tokens, head_width)
        return self.rewrites.linear_attention and pays and not self.reads_one_row(layer)

    def public_scale(self, layer: int, name: str) -> float:
        """What an operator multiplies the scores with before anything else, as far as it is public."""
        tokens, found = self.spec.tokens, self.scores(layer)
        if name == "softmax" and found:
            return short_form(tokens, found).scale
        return {"squared_attn": tokens**-0.5, "scale_attn": 1 / tokens}.get(name, 1.0)

    def gelu_ids(self, layer: int) -> np.ndarray:
        """Operator ids (tokens that leave the block,) or, by element, (those tokens, mlp width)."""
        ids = self.plan.layers["gelu"][layer]
        full = np.broadcast_to(ids, (self.spec.tokens,)) if ids.ndim == 0 else ids
        return full[: self.query_rows(layer)]

    def mlp_groups(self, layer: int) -> tuple[MlpGroup, ...]:
        """The token groups of one MLP; by element, one group of hidden values."""
        ids = self.gelu_ids(layer)
        every = np.arange(len(ids))
        if ids.ndim == 2:
            return (MlpGroup("hidden", tuple(BY_ID[int(i)].name for i in np.unique(ids)), (every,)),)
        where = {BY_ID[int(i)].name: np.flatnonzero(ids == i) for i in np.unique(ids)}
        groups = [
            MlpGroup("square", (name,), (where.pop(name),)) for name in ("quad", "quadratic") if name in where
        ]
        if "affine" in where:
            groups.append(MlpGroup("merged", ("affine",), (where.pop("affine"),)))
        if "identity" in where and self._merges(layer, where):
            groups.append(MlpGroup("merged", ("identity",), (where.pop("identity"),)))
        if where:
            groups.append(MlpGroup("hidden", tuple(where), tuple(where.values())))
        return tuple(groups)

    def _merges(self, layer: int, where: Mapping[str, np.ndarray]) -> bool:
        tokens, merged = sum(index.size for index in where.values()), where["identity"].size
        pays = merging_pays(tokens, merged, self.spec.width, self.block(layer).mlp_width)
        return self.rewrites.merge_mlp and self.rewrites.fold and pays

    def by_element(self, layer: int) -> bool:
        """Whether this layer's GELU sites are single values."""
        return self.gelu_ids(layer).ndim == 2

    def root(self, norm: str) -> ShortRoot | None:
        """The short rsqrt of a LayerNorm's sum of squares, if its range is public."""
        found = variance_range(self.ranges, norm)
        if found is None or not (self.rewrites.ranges and self.rewrites.fold):
            return None
        width, eps = self.spec.width, self.norm_eps(norm)
        return short_root(width * (found.low + eps), width * (found.high + eps))

    def norm_eps(self, norm: str) -> float:
        """The epsilon of a LayerNorm in the units of its input, which may be a sum instead of a mean."""
        return self.spec.norm_eps * (self.pooled_tokens**2 if norm == "norm" and self.sums_before_norm else 1)

    def norm_gain(self, norm: str) -> float:
        """By what the next weights are multiplied, because the graph divides by less than the deviation."""
        root = self.root(norm)
        return math.sqrt(self.spec.width) / (root.factor if root else 1.0)

    def scores(self, layer: int) -> ScoreRange | None:
        """The range of the exact rows' scores, if it is public and used."""
        return score_range(self.ranges, layer) if self.rewrites.ranges else None

    @property
    def pooled_tokens(self) -> int:
        """How many tokens the mean is over."""
        return self.spec.tokens - int(self.spec.class_token)

    @property
    def sums_before_norm(self) -> bool:
        """Whether the last LayerNorm sees a sum over tokens."""
        return self.spec.pooling == "mean" and self.spec.final_norm == "after_pool"

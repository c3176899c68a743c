"""What is public about a program: sizes, plan, rewrites, ranges, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from privit.artifact import Public
from privit.operators import BY_NAME, Operator
from privit.plan import OWN_FACTOR, Plan
from privit.program.choices import ONE, Batch, Rewrites, linear_pays, merging_pays
from privit.program.forms import ShortRoot, score_exp, short_root
from privit.program.heads import Head, head_of, present
from privit.program.norms import Norm, norm_of
from privit.program.ranges import ScoreRange, score_range, variance_range
from privit.spec import NORM_PLACES, Block, Spec

PASSED = "identity"
"""The operator that does nothing: its tokens may share the hidden layer with others."""


Path = Literal["hidden", "merged", "square"]
_OWN_PATHS: dict[Path, str] = {"square": "square", "merged": "linear"}
"""The path that tokens of a family take by themselves."""


@dataclass(frozen=True)
class MlpGroup:
    """Tokens of one MLP that share weights: which path they take and which operator each runs."""

    path: Path
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


def _reuses_first(entries: list[Operator]) -> bool:
    """Whether the first of these that reads or computes a factor reads one."""
    read = (entry.family == "reused" for entry in entries if entry.family in ("reused", *OWN_FACTOR))
    return next(read, False)


@dataclass(frozen=True)
class Graph:
    """Everything public that shapes the program."""

    spec: Spec
    plan: Plan
    rewrites: Rewrites = field(default_factory=Rewrites)
    ranges: Mapping[str, float] = field(default_factory=dict)
    guard: bool = False
    batch: Batch = ONE

    @classmethod
    def of(cls, public: Public, plan: Plan, rewrites: Rewrites | None = None, batch: Batch = ONE) -> Graph:
        """The graph of an artifact's public part."""
        return cls(public.spec, plan, rewrites or Rewrites(), public.ranges, public.guard, batch)

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
        return 1 if self.only_class_token(layer) else self.spec.tokens_in(layer)

    def softmax_ids(self, layer: int) -> np.ndarray:
        """Operator ids (heads, rows that leave the block)."""
        ids = self.plan.layers["softmax"][layer]
        heads, tokens = self.block(layer).heads, self.spec.tokens_in(layer)
        full = np.broadcast_to(ids[:, None] if ids.ndim == 1 else ids, (heads, tokens))
        return full[:, : self.query_rows(layer)]

    def heads(self, layer: int) -> tuple[Head, ...]:
        """What each head computes."""
        fold = self.rewrites.fold
        return tuple(head_of(ids, fold, lambda: self._skips_scores(layer)) for ids in self.softmax_ids(layer))

    def mixes_tokens(self, layer: int) -> bool:
        """Whether secret weights mix the tokens of every head before any product, so that none has a v."""
        mixes = all(head.names == ("static_attn",) for head in self.heads(layer))
        return mixes and self.rewrites.fold and not self.reads_one_row(layer)

    def sums_values(self, layer: int) -> bool:
        """Whether every head reads only the sum of its values, so that one row stands for all."""
        return all(head.form == "constant" for head in self.heads(layer))

    def _skips_scores(self, layer: int) -> bool:
        head_width = self.spec.width // self.block(layer).heads
        pays = linear_pays(self.query_rows(layer), self.spec.tokens_in(layer), head_width)
        return self.rewrites.linear_attention and pays and not self.reads_one_row(layer)

    def public_scale(self, layer: int, name: str) -> float:
        """What an operator multiplies the scores with before anything else, as far as it is public."""
        tokens, scores, entry = self.spec.tokens_in(layer), self.scores(layer), BY_NAME[name]
        if name == "softmax" and scores:
            return score_exp(tokens, scores).scale
        if entry.family == "square" and not entry.fitted:
            return (tokens / entry.coefficients[0]) ** -0.5
        if entry.family == "linear" and not entry.fitted:
            return entry.coefficients[0] / tokens
        return 1.0

    def gelu_ids(self, layer: int) -> np.ndarray:
        """Operator ids (tokens that leave the block,) or, by element, (those tokens, mlp width)."""
        ids = self.plan.layers["gelu"][layer]
        full = np.broadcast_to(ids, (self.spec.tokens_in(layer),)) if ids.ndim == 0 else ids
        return full[: self.query_rows(layer)]

    def mlp_groups(self, layer: int) -> tuple[MlpGroup, ...]:
        """The token groups of one MLP; by element, one group of hidden values."""
        ids = self.gelu_ids(layer)
        entries = present(ids)
        if ids.ndim == 2:
            every = np.arange(len(ids))
            return (MlpGroup("hidden", tuple(entry.name for entry in entries), (every,)),)
        where = {entry.name: np.flatnonzero(ids == entry.id) for entry in entries}
        groups = [
            MlpGroup(path, (entry.name,), (where.pop(entry.name),))
            for path, family in _OWN_PATHS.items()
            for entry in entries
            if entry.family == family and entry.name != PASSED
        ]
        if PASSED in where and self._merges(layer, where):
            groups.append(MlpGroup("merged", (PASSED,), (where.pop(PASSED),)))
        if where:
            groups.append(MlpGroup("hidden", tuple(where), tuple(where.values())))
        return tuple(groups)

    def _merges(self, layer: int, where: Mapping[str, np.ndarray]) -> bool:
        tokens, merged = sum(index.size for index in where.values()), where[PASSED].size
        pays = merging_pays(tokens, merged, self.spec.width, self.block(layer).mlp_width)
        return self.rewrites.merge_mlp and self.rewrites.fold and pays

    def by_element(self, layer: int) -> bool:
        """Whether this layer's GELU sites are single values."""
        return self.gelu_ids(layer).ndim == 2

    def norm(self, name: str) -> Norm:
        """What one LayerNorm computes."""
        return self.norms[name]

    @cached_property
    def norms(self) -> dict[str, Norm]:
        """What every LayerNorm computes, in order."""
        spec, last = self.spec, self.spec.depth - 1
        ids = [site for array in self.plan.layers["norm"] for site in array]
        found = {}
        for name, site in zip(spec.norms, ids, strict=True):
            layer = last if name == "norm" else int(name.split(".")[1])
            behind_attention = not name.endswith("norm1")
            only_first = self.only_class_token(layer) or (name == "norm" and spec.pooling == "cls")
            one = behind_attention and only_first
            patches = name == "norm" and spec.pooling == "mean"
            found[name] = norm_of(name, np.atleast_1d(site), spec.class_token, one, patches)
        return found

    def carries(self, layer: int, only_patches: bool = False) -> bool:
        """Whether a LayerNorm from this block on reuses a factor from before the block."""
        norms = list(self.norms.values())[len(NORM_PLACES) * layer :]
        rows = [[norm.patches for norm in norms if not norm.only_class_token]]
        if not only_patches:
            rows.append([norm.class_token for norm in norms if norm.class_token])
        return any(_reuses_first(entries) for entries in rows)

    def root(self, norm: str) -> ShortRoot | None:
        """The short rsqrt of a LayerNorm's sum of squares, if its range is public."""
        found = variance_range(self.ranges, norm)
        if found is None or not (self.rewrites.ranges and self.rewrites.fold):
            return None
        width, eps = self.spec.width, self.norm_eps(norm)
        return short_root(width * (found.low + eps), width * (found.high + eps))

    def norm_eps(self, norm: str) -> float:
        """The epsilon of a LayerNorm in the units of its input, which may be a sum instead of a mean."""
        return self.spec.norm_eps * self.summed_tokens(norm) ** 2

    def summed_tokens(self, norm: str) -> int:
        """How many tokens are added up, where the model has their mean, in what a LayerNorm sees."""
        return self.pooled_tokens if norm == "norm" and self.sums_before_norm else 1

    def norm_gain(self, norm: str) -> float:
        """By what an exact factor must be multiplied: the graph divides by less than the deviation."""
        root = self.root(norm)
        return math.sqrt(self.spec.width) / (root.factor if root else 1.0)

    def variance_unit(self, norm: str) -> float:
        """In what a polynomial of a LayerNorm's variances counts them: near them, if they are public.

        A sum of squares in this unit is that sum by a power of two, which fixed point holds exactly.
        """
        found, width = variance_range(self.ranges, norm), self.spec.width
        middle = math.sqrt(found.low * found.high) if found else 1.0
        return 2.0 ** round(math.log2(width * middle)) / width

    def variance_scale(self, norm: str) -> float:
        """By what a sum of squares is multiplied to be a variance in that unit: a power of two."""
        return 1 / (self.spec.width * self.variance_unit(norm))

    def scores(self, layer: int) -> ScoreRange | None:
        """The range of the exact rows' scores, if it is public and used."""
        return score_range(self.ranges, layer) if self.rewrites.ranges else None

    @property
    def pooled_tokens(self) -> int:
        """How many tokens the mean is over."""
        return self.spec.tokens_in(self.spec.depth) - int(self.spec.class_token)

    @property
    def sums_before_norm(self) -> bool:
        """Whether the last LayerNorm sees a sum over tokens."""
        mean_first = self.spec.pooling == "mean" and self.spec.final_norm == "after_pool"
        return mean_first and self.rewrites.fold

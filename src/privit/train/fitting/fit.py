"""Fitted stand-ins: the parameters of a student's operators by least squares, layer by layer.

The teacher's and the student's tokens go through the network side by side. At each place where
stand-ins stand, their parameters are solved from sums over the images (moments.py), then the linear layer
behind them is, and only then do the student's tokens go on: later layers are fitted on what the
replaced layers before them really produce. What is kept of the images is their tokens, once for each model.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from privit.errors import RequestError
from privit.operators import Operator
from privit.plan import uniform_plan
from privit.spec import NORM_PLACES, without_pools
from privit.train.fitting.moments import (
    POWERS,
    Sums,
    attention_sums,
    bounded_quadratic,
    linear_sums,
    power_sums,
    static_sums,
)
from privit.train.fitting.norms import norm_sums, set_norm
from privit.train.fitting.sensitivity import token_weights
from privit.train.student.norms import NormSites, Stream, mix_patches
from privit.train.student.switch import Sites
from privit.train.student.vit import Block, Student, ignore


@dataclass(frozen=True)
class FitConfig:
    """How stand-ins are fitted.

    `target` is what a stand-in should come near: what the exact operator gives for the student's own
    inputs, or what it gives in the teacher. `weighting` counts tokens equally, or by how strongly the
    teacher's prediction depends on their position. `refit` solves the linear layer behind the
    stand-ins too, so that the student's tokens come back to the teacher's. `shared` fits one set of
    parameters for a layer instead of one for each channel or head. `shift_bound` is the largest
    |q1 / (2 q2)| (see `bounded_quadratic`).
    """

    images: int = 512
    batch_size: int = 32
    target: Literal["exact", "teacher"] = "exact"
    weighting: Literal["uniform", "gradient"] = "gradient"
    refit: bool = True
    shared: bool = False
    ridge: float = 1e-6
    refit_ridge: float = 0.3
    shift_bound: float = 16.0
    seed: int = 0

    def problems(self) -> list[str]:
        """Everything that is wrong with these settings, in sentences."""
        positive = ("images", "batch_size", "shift_bound")
        found = [f"{n} is {getattr(self, n)}, not above zero" for n in positive if not getattr(self, n) > 0]
        not_negative = ("ridge", "refit_ridge", "seed")
        return found + [
            f"{n} is {getattr(self, n)}, below zero" for n in not_negative if not getattr(self, n) >= 0
        ]


def fit(
    student: Student, images: np.ndarray, config: FitConfig | None = None, teacher: Student | None = None
) -> Student:
    """A copy of the student whose stand-ins are fitted to the teacher on `images` (n, C, S, S).

    Each operator that has parameters is fitted where it stands: by the student's plan, or, while there
    are switches, at every site. Without a `teacher`, the student with every site exact is the teacher.
    The result depends on the student, the images, the settings and the number of threads, on nothing else.
    """
    config = config or FitConfig()
    student = copy.deepcopy(student).eval().requires_grad_(False)
    teacher = copy.deepcopy(teacher) if teacher is not None else exact_copy(student, pools=False)
    teacher = teacher.eval().requires_grad_(False)
    pixels = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))
    fitted = _Fit(student, teacher, pixels, config)
    for layer in range(student.spec.depth):
        fitted.pool(layer)
        fitted.attention(layer)
        fitted.mlp(layer)
    fitted.final_norm()
    return student


def exact_copy(student: Student, pools: bool = True) -> Student:
    """The same weights with the exact operator at every site; without `pools`, every patch stays."""
    spec = student.spec if pools else without_pools(student.spec)
    plan = uniform_plan(spec, granularity=student.granularity, **student.exact)
    exact = Student(spec, student.granularity, student.exact)
    exact.set_plan(plan)
    exact.load_weights(student.weights())
    return exact


def fit_images(split_size: int, config: FitConfig) -> np.ndarray:
    """Which training images a fit looks at: `config.images` of them, or all if there are fewer, by seed."""
    order = np.random.default_rng(config.seed).permutation(split_size)
    return np.sort(order[: config.images])


class _Fit:
    """A fit under way: `own` and `theirs` are the tokens (n, N, width) of student and teacher so far.

    `factor` is what the student's LayerNorms pass on. Behind a pool the student has fewer tokens than the
    teacher, and is compared with the teacher's as its own pools would mix them (`_seen`).
    """

    def __init__(self, student: Student, teacher: Student, images: Tensor, config: FitConfig):
        self.student, self.teacher, self.config = student, teacher, config
        starts = range(0, len(images), config.batch_size)
        self.parts = [slice(start, start + config.batch_size) for start in starts]
        with torch.no_grad():
            self.own = torch.cat([student.embed(images[part]) for part in self.parts])
            self.theirs = torch.cat([teacher.embed(images[part]) for part in self.parts])
        self.factor: Tensor | None = None
        self.pools: list[Tensor] = []
        self.weights = None
        if config.weighting == "gradient":
            self.weights = token_weights(teacher, images, config.batch_size, config.seed)

    def weight(self, kind: str, layer: int, part: slice) -> Tensor:
        """How much each token counts (b, N)."""
        shape = self.own[part].shape[:2]
        if self.weights is None:
            return torch.ones(shape)
        return self._seen(self.weights[kind][layer].reshape(1, -1, 1)).squeeze(-1).expand(shape)

    def _seen(self, tokens: Tensor) -> Tensor:
        """The teacher's tokens (n, N, ...) as the student's pools so far mix them."""
        first = int(self.student.spec.class_token)
        return reduce(lambda x, matrix: mix_patches(matrix, x, first), self.pools, tokens)

    @torch.no_grad()
    def pool(self, layer: int) -> None:
        """Moves the student's tokens past a block's pool, if it has one."""
        block, _ = self._blocks(layer)
        if block.pool is not None:
            stream = block.pooled(Stream(self.own, self.factor))
            self.own, self.factor = stream
            self.pools.append(block.pool.weight)

    def _stream(self, part: slice) -> Stream:
        return Stream(self.own[part], None if self.factor is None else self.factor[part])

    def _normalised(self, layer: int, place: int, part: slice) -> Tensor:
        """What the student's attention (place 0) or MLP (place 1) reads."""
        return self._blocks(layer)[0].normalise(place, self._stream(part))[0]

    @torch.no_grad()
    def _norm(self, layer: int, place: int) -> Tensor | None:
        """Fits what stands at a LayerNorm; gives the factors that it passes on."""
        block, kind = self._blocks(layer)[0], ("softmax", "gelu")[place]
        for entry in _fitted_operators(block.norm):
            sums = [
                norm_sums(block.norm, place, entry, self._stream(part), self.weight(kind, layer, part))
                for part in self.parts
            ]
            set_norm(block.norm, place, entry, reduce(add, sums), self.config.ridge)
        passed = [block.normalise(place, self._stream(part))[1].factor for part in self.parts]
        return None if passed[0] is None else torch.cat([factor for factor in passed if factor is not None])

    @torch.no_grad()
    def final_norm(self) -> None:
        """Fits what stands at the last LayerNorm, on what it reads."""
        sites = cast(NormSites, self.student.sites_of("norm")[-1])
        one = self.student.spec.pooling == "cls"
        first, place = int(self.student.spec.class_token), len(NORM_PLACES)
        rows = slice(0, 1) if one else slice(first, None)
        for entry in _fitted_operators(sites):
            read = [Stream(*(None if x is None else x[:, rows] for x in self._stream(p))) for p in self.parts]  # type: ignore[arg-type]
            if self.student.spec.final_norm == "after_pool":
                read = [Stream(*(None if x is None else x.mean(1, keepdim=True) for x in s)) for s in read]  # type: ignore[arg-type]
            sums = [norm_sums(sites, place, entry, s, torch.ones(s.tokens.shape[:2]), one) for s in read]
            set_norm(sites, place, entry, reduce(add, sums), self.config.ridge)

    @torch.no_grad()
    def attention(self, layer: int) -> None:
        """Fits what stands at the softmax sites of one layer and moves all tokens past it."""
        block, exact = self._blocks(layer)
        goals = torch.cat([exact.attention(exact.norm1(x), ignore) for x in self._parts(self.theirs)])
        passed = self._norm(layer, 0)
        for entry in _fitted_operators(block.softmax):
            rows = _stands(block.softmax, entry)
            sums = reduce(add, (self._attention_sums(layer, entry, rows, part) for part in self.parts))
            self._set(block.softmax, entry, sums)

        def features(part: slice) -> Tensor:
            return mixed_values(block, self._normalised(layer, 0, part))

        place = _Place((block.softmax, block.norm), features, block.out, block.scale1, exact.scale1)
        self._finish("softmax", layer, goals, place)
        self.factor = passed

    def _attention_sums(self, layer: int, entry: Operator, rows: Tensor, part: slice) -> Sums:
        block, exact = self._blocks(layer)
        scores, values = scores_and_values(block, self._normalised(layer, 0, part))
        if self.config.target == "teacher":
            their_scores, their_values = scores_and_values(exact, exact.norm1(self.theirs[part]))
            target = self._seen_heads(exact.softmax(their_scores) @ their_values)
        else:
            target = exact.softmax(scores) @ values
        if entry.family == "static":
            return static_sums(values, target)
        weight = self.weight("softmax", layer, part).unsqueeze(1) * rows
        return attention_sums(
            scores, values, target, weight.expand(scores.shape[:3]), list(POWERS[entry.name].values())
        )

    def _seen_heads(self, x: Tensor) -> Tensor:
        return self._seen(x.flatten(0, 1)).unflatten(0, x.shape[:2])

    @torch.no_grad()
    def mlp(self, layer: int) -> None:
        """Fits what stands at the GELU sites of one layer and moves all tokens past it."""
        block, exact = self._blocks(layer)
        goals = torch.cat([exact.mlp(exact.norm2(x), ignore) for x in self._parts(self.theirs)])
        passed = self._norm(layer, 1)
        for entry in _fitted_operators(block.gelu):
            here = _stands(block.gelu, entry)
            sums = reduce(add, (self._mlp_sums(layer, entry, here, part) for part in self.parts))
            self._set(block.gelu, entry, sums)

        def features(part: slice) -> Tensor:
            return block.gelu(block.up(self._normalised(layer, 1, part)))

        place = _Place((block.gelu, block.norm), features, block.down, block.scale2, exact.scale2)
        self._finish("gelu", layer, goals, place)
        self.factor = passed

    def _mlp_sums(self, layer: int, entry: Operator, here: Tensor, part: slice) -> Sums:
        block, exact = self._blocks(layer)
        hidden = block.up(self._normalised(layer, 1, part))
        if self.config.target == "teacher":
            target = self._seen(exact.gelu(exact.up(exact.norm2(self.theirs[part]))))
        else:
            target = exact.gelu(hidden)
        weight = self.weight("gelu", layer, part).unsqueeze(-1) * here
        return power_sums(hidden, target, weight, list(POWERS[entry.name].values()))

    def _blocks(self, layer: int) -> tuple[Block, Block]:
        """One layer of the student and of the teacher."""
        return cast(Block, self.student.blocks[layer]), cast(Block, self.teacher.blocks[layer])

    def _parts(self, tokens: Tensor) -> Iterator[Tensor]:
        return (tokens[part] for part in self.parts)

    def _set(self, sites: Sites, entry: Operator, sums: Sums) -> None:
        """Solves the sums and fills the operator's parameters in."""
        held = getattr(sites, entry.name)
        scale = 1.0 / sites.setting if isinstance(sites.setting, int) else 1.0
        if entry.family == "static":
            prior = torch.full_like(sums.right, entry.initial["w"] * scale)
            sums = sums.shared() if self.config.shared else sums
            held["w"].copy_(sums.solve(prior, self.config.ridge).mT)
            return
        initial = torch.tensor(
            [entry.initial[name] * scale for name in POWERS[entry.name]], dtype=torch.float64
        )
        prior = initial.reshape(1, -1, 1).expand(sites.owners, -1, 1)
        if self.config.shared:
            sums = sums.shared()
        if len(initial) == 3:
            solution = bounded_quadratic(sums, prior, self.config.ridge, self.config.shift_bound)
        else:
            solution = sums.solve(prior, self.config.ridge).squeeze(-1)
        for name, column in zip(POWERS[entry.name], solution.unbind(-1), strict=True):
            held[name].copy_(column)

    def _finish(self, kind: str, layer: int, goals: Tensor, place: _Place) -> None:
        """Refits the linear layer behind the sites, then moves both models' tokens past it."""
        after = self.theirs + (goals if place.exact_scale is None else goals * place.exact_scale)
        if self.config.refit and any(_has_stand_in(sites) for sites in place.sites):
            missing = self._seen(after) - self.own
            target = missing if place.scale is None else missing / place.scale
            sums = reduce(
                add,
                (
                    linear_sums(
                        place.features(part).flatten(0, 1),
                        target[part].flatten(0, 1),
                        self.weight(kind, layer, part).flatten(),
                    )
                    for part in self.parts
                ),
            )
            before = torch.cat([place.linear.weight, place.linear.bias.unsqueeze(1)], dim=1).T
            solution = sums.solve(before.double().unsqueeze(0), self.config.refit_ridge).squeeze(0)
            place.linear.weight.copy_(solution[:-1].T)
            place.linear.bias.copy_(solution[-1])
        for part in self.parts:
            change = place.linear(place.features(part))
            self.own[part] += change if place.scale is None else change * place.scale
        self.theirs = after


@dataclass(frozen=True)
class _Place:
    """Where kinds stand in a block: their sites, what they give for the block's tokens, and what follows."""

    sites: tuple[Sites, ...]
    features: Callable[[slice], Tensor]
    linear: nn.Linear
    scale: Tensor | None
    exact_scale: Tensor | None


def scores_and_values(block: Block, x: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (B, H, N, N) and values (B, H, N, D) of normalised tokens (B, N, width)."""
    batch, tokens, width = x.shape
    qkv = block.qkv(x).view(batch, tokens, 3, block.heads, width // block.heads)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    return (q * (1.0 / math.sqrt(q.shape[-1]))) @ k.transpose(-2, -1), v


def mixed_values(block: Block, x: Tensor) -> Tensor:
    """What the attention's last linear layer reads (B, N, width), from normalised tokens."""
    scores, values = scores_and_values(block, x)
    return (block.softmax(scores) @ values).transpose(1, 2).reshape(x.shape)


def _fitted_operators(sites: Sites) -> list[Operator]:
    """The operators of a layer that have parameters to fit."""
    present = [entry for entry, _ in sites.groups] if sites.frozen else [sites.exact, sites.stand_in]
    fitted = [entry for entry in present if entry.parameters]
    unknown = [entry.name for entry in fitted if entry.name not in POWERS and entry.family != "static"]
    if unknown:
        raise RequestError(f"no fit is known for {', '.join(unknown)}", f"fitted: {', '.join(POWERS)}")
    return fitted


def _has_stand_in(sites: Sites) -> bool:
    return sites.frozen and any(not entry.exact for entry, _ in sites.groups)


def _stands(sites: Sites, entry: Operator) -> Tensor:
    """Where an operator stands, as zeros and ones with two axes that broadcast against one image's values."""
    here = np.ones(sites.shape) if sites.ids is None else np.equal(sites.ids, entry.id)
    spread = sites.shape + (1,) * (2 - len(sites.shape))
    return torch.from_numpy(np.asarray(here, dtype=np.float32).reshape(spread))

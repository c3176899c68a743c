"""Plans without training: keep the sites whose replacement costs the most, as measured on images.

Two measurements meet. For every single site, the curvature of the prediction says how far replacing it alone
would move the teacher's output (one backward pass over the images gives all sites). For every group of sites
(layer, head, class token or not), replacing the whole group is tried out, and the sites' figures
are scaled so that they add up to what was measured: within a group they only say who comes first.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch
from torch import Tensor

from privit.operators import operator
from privit.plan import Plan, plan_from_kept, site_budget
from privit.spec import KINDS, PAPER_KINDS
from privit.train.descent.binarize import keep_ranked
from privit.train.fitting.fit import exact_copy
from privit.train.fitting.sensitivity import prediction_probe
from privit.train.fitting.spacing import spaced
from privit.train.student.norms import NormSites, Stream
from privit.train.student.switch import Sites
from privit.train.student.vit import Block, Student

IRREPLACEABLE = 1e12
"""The loss of a site that nothing can stand in for."""
Scores = dict[str, list[np.ndarray]]
"""For each kind and layer, a figure per site: the loss that its replacement causes."""


def choose_plans(
    student: Student, scores: Scores, budgets: Mapping[str, Mapping[str, float]]
) -> dict[str, Plan]:
    """For each budget by name, the plan that keeps the sites with the largest scores.

    A budget gives for each kind a number of sites, or a share as a float up to 1; a smaller one keeps a
    part of what a larger one keeps. LayerNorms that reuse others' factors are spread (`spacing.py`).
    """
    spread = student.granularity.norm == "layer" and operator(student.stand_in["norm"]).family == "reused"
    plans = {}
    for name, sites in budgets.items():
        kept = {}
        for kind in KINDS:
            total = sum(layer.size for layer in scores[kind])
            budget = sites[kind] if kind in PAPER_KINDS else sites.get(kind, 1.0)
            choose = spaced if kind == "norm" and spread else keep_ranked
            kept[kind] = choose(scores[kind], site_budget(budget, total, kind))
        plans[name] = plan_from_kept(student.granularity, kept, student.exact, student.stand_in)
    return plans


def site_scores(student: Student, images: np.ndarray, batch_size: int = 32, seed: int = 0) -> Scores:
    """What replacing each site costs: KL to the untouched model, in nats per image.

    `student` has switches, and stand-ins fitted in the untouched model (`fit` of a student with switches).
    """
    pixels = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))
    exact = exact_copy(student).eval().requires_grad_(False)
    switched = copy.deepcopy(student).eval().requires_grad_(False)
    scores = _curvature(exact, switched, pixels, batch_size, seed)
    measured = _measured(exact, switched, pixels, batch_size)
    for kind in KINDS:
        for layer, values in enumerate(scores[kind]):
            for place, loss in measured.get((kind, layer), ()):
                # A group of measured loss zero or below (noise) ranks below every other, in its own order.
                predicted = max(float(values[place].sum()), 1e-300)
                values[place] *= max(loss, 1e-12) / predicted
    first = switched.sites_of("norm")[0]
    if first.stand_in.family == "reused":
        # The first LayerNorm has nothing to reuse: it stays before all others.
        scores["norm"][0][0] = IRREPLACEABLE
    return scores


def _curvature(exact: Student, switched: Student, images: Tensor, batch_size: int, seed: int) -> Scores:
    """Half the squared change of the prediction by each site's replacement alone, to second order."""
    generator = torch.Generator().manual_seed(seed)
    # A LayerNorm is a site of its own, whose loss is measured; curvature has nothing to divide.
    scores: Scores = {kind: [np.ones(s.shape) for s in exact.sites_of(kind)] for kind in KINDS}
    scores |= {kind: [np.zeros(s.shape) for s in exact.sites_of(kind)] for kind in PAPER_KINDS}
    names = {"gelu": ("hidden", "activated"), "softmax": ("score", "attention")}
    for start in range(0, len(images), batch_size):
        seen: dict[str, Tensor] = {}
        batch = images[start : start + batch_size].clone().requires_grad_()
        logits = exact(batch, lambda name, value, seen=seen: seen.update({name: value}))
        probe = prediction_probe(logits, generator)
        for kind in PAPER_KINDS:
            inputs, outputs = (
                [seen[f"blocks.{i}.{name}"] for i in range(exact.spec.depth)] for name in names[kind]
            )
            gradients = torch.autograd.grad(probe, outputs, retain_graph=True)
            for layer, sites in enumerate(switched.sites_of(kind)):
                with torch.no_grad(), _replaced(sites):
                    change = (sites(inputs[layer]) - outputs[layer]) * gradients[layer]
                # One figure per image and site: what is left after the sites' axes belongs together.
                moved = change.double().reshape(len(batch), *sites.shape, -1).sum(-1)
                scores[kind][layer] += 0.5 * moved.square().sum(0).numpy() / len(images)
    return scores


Measured = dict[tuple[str, int], list[tuple[np.ndarray, float]]]
"""For each kind and layer, the groups as boolean arrays over its sites, and what replacing each costs."""


@torch.no_grad()
def _measured(exact: Student, switched: Student, images: Tensor, batch_size: int) -> Measured:
    """What replacing each group costs: each layer is run again with one group replaced, then the rest."""
    found: Measured = {}
    kinds = [kind for kind in KINDS if not switched.frozen(kind)]
    for kind in kinds:
        for layer, sites in enumerate(exact.sites_of(kind)):
            found[kind, layer] = [(group, 0.0) for group in _groups(sites, exact.spec.class_token)]
    for start in range(0, len(images), batch_size):
        stream = Stream(exact.embed(images[start : start + batch_size]))
        logits = _rest(switched, stream, 0)
        for layer in range(exact.spec.depth):
            block = cast(Block, switched.blocks[layer])
            for kind in kinds:
                sites = switched.sites_of(kind)[layer]
                for g, (group, loss) in enumerate(found[kind, layer]):
                    with _replaced(sites, group):
                        changed = block(stream, plain=False)
                        # The last LayerNorm's site is the last block's.
                        found_logits = _rest(switched, changed, layer + 1)
                    moved = divergence(logits, found_logits) / len(images)
                    found[kind, layer][g] = (group, loss + moved)
            stream = block(stream, plain=False)
    return found


def _groups(sites: Sites, class_token: bool) -> Iterator[np.ndarray]:
    """The sites of a layer in groups: head by head, the class token apart from the others."""
    if isinstance(sites, NormSites):
        for place in np.ndindex(sites.shape):
            one = np.zeros(sites.shape, dtype=bool)
            one[place] = True
            yield one
        return
    heads = range(sites.shape[0]) if sites.kind == "softmax" and sites.shape else [slice(None)]
    has_tokens = (sites.kind == "gelu" and len(sites.shape) > 0) or len(sites.shape) == 2
    for head in heads:
        whole = np.zeros(sites.shape, dtype=bool)
        whole[head if sites.shape else ()] = True
        if not (class_token and has_tokens):
            yield whole
            continue
        first = np.zeros(sites.shape, dtype=bool)
        # The class token is entry 0 of the axis of tokens: the first for GELU, the last for softmax.
        first[(0,) if sites.kind == "gelu" else (slice(None), 0)] = True
        yield whole & first
        yield whole & ~first


@contextmanager
def _replaced(sites: Sites, group: np.ndarray | None = None) -> Iterator[None]:
    """Switches a group of sites, or all, to the stand-in for a while."""
    assert sites.switch is not None
    exact = np.zeros(sites.shape) if group is None else np.logical_not(group)
    sites.switch.data.copy_(torch.from_numpy(np.asarray(exact, dtype=np.float32)))
    try:
        yield
    finally:
        sites.switch.data.fill_(1.0)


def _rest(model: Student, stream: Stream, layer: int) -> Tensor:
    """Logits from the tokens that enter a layer."""
    plain = model.plain_norms
    for block in list(model.blocks)[layer:]:
        stream = block(stream, plain)
    return model.head(model.read(stream))


def divergence(expected: Tensor, found: Tensor) -> float:
    """KL of the found prediction from the expected one, summed over the batch."""
    ours, theirs = found.double().log_softmax(-1), expected.double().log_softmax(-1)
    return float((theirs.exp() * (theirs - ours)).sum())

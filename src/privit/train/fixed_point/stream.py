"""A residual stream that the engine can hold: the same model with smaller values between its blocks.

Everything that reads the stream is a LayerNorm, and a LayerNorm does not see the scale of what it reads; a
reused one takes over what an earlier one divided by, and the numbers of fixed and linear ones follow. So
whatever writes to the stream may be divided by a number, epsilon by its square, and the logits stay as they
are; with a power of two even to the last bit, but for what is too small for a float. Training with
stand-ins that grow (the identity, a squared attention) makes such streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from privit.spec import Spec
from privit.train.fixed_point.ranges import RESERVE, limit_of
from privit.train.student.vit import Student

LEAST_VARIANCE = 2.0**-8
"""Of a token. The engine rounds a square to a multiple of 2^-18, so this variance is known to about 2^-10."""

# What is not a LayerNorm's own 1 / sigma, or an earlier one's, sees the stream's scale.
_SCALES = (("fixed_norm", "s", -1), ("linear_norm", "a", -1), ("linear_norm", "b", -3))


def fitting_scale(ranges: Mapping[str, float], spec: Spec) -> float:
    """The power of two by which the stream is multiplied so that every LayerNorm's variance fits.

    It is 1 where all fit already, where no LayerNorm computes a variance, and where no scale would do: tokens
    differ too much.
    """
    highs = {name: high for name, high in ranges.items() if name.endswith(".variance_high")}
    if not highs:
        return 1.0
    least = min(ranges[name.removesuffix("high") + "low"] for name in highs)
    scale = 1.0
    while least * scale**2 >= LEAST_VARIANCE:
        if all(high * scale**2 <= limit_of(name, spec) / RESERVE for name, high in highs.items()):
            return scale
        scale /= 2
    return 1.0


def scaled_stream(student: Student, scale: float) -> Student:
    """A copy of a frozen student whose residual stream is `scale` times as large, with the same logits."""
    spec = replace(student.spec, norm_eps=student.spec.norm_eps * scale**2)
    scaled = Student(spec, student.granularity)
    scaled.set_plan(student.plan())
    scaled.load_weights(student.weights())
    writers: list[Tensor] = [scaled.patch.weight, scaled.patch.bias, scaled.position]
    if scaled.class_token is not None:
        writers.append(scaled.class_token)
    for block in scaled.blocks:
        writers += [*block.get_submodule("out").parameters(), *block.get_submodule("down").parameters()]
    with torch.no_grad():
        for writer in writers:
            writer.mul_(scale)
        for sites in scaled.sites_of("norm"):
            for operator, parameter, power in _SCALES:
                if hasattr(sites, operator):
                    getattr(sites, operator)[parameter].mul_(scale**power)
    return scaled.to(student.position.device).train(student.training)

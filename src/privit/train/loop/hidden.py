"""How far a student's tokens are from its teacher's, block by block: what a fine-tuning may learn from.

A teacher's ten logits say little of an image; its tokens say what every block should make of it. On a few
thousand images that keeps a student of polynomials from learning the labels by heart (docs/fitted.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from privit.train.student.norms import mix_patches
from privit.train.student.vit import POOL, Student


def is_hidden_state(name: str) -> bool:
    """Whether an observed value is the residual stream before a block, or behind the last."""
    return name == "residual" or name.endswith(".residual1")


def hidden_states(model: Any, images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The logits, and every hidden state by name."""
    found: dict[str, Tensor] = {}

    def observe(name: str, value: Tensor) -> None:
        if is_hidden_state(name):
            found[name] = value

    return model(images, observe=observe, inside=False), found


def hidden_error(student: Student, ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> Tensor:
    """Mean over hidden states of log(1 + a token's relative squared error); the teacher's are pooled alike.

    A token's error is relative to the variance of the teacher's token, which is what a LayerNorm divides by,
    so that no layer and no large token outweighs the others. The logarithm is for the few tokens that
    polynomials drive far away, which would be all that a batch is about. The class token counts as much as
    all patches.
    """
    first, pools = int(student.spec.class_token), _pools(student)
    errors = []
    for name, wanted in theirs.items():
        with torch.no_grad():
            pooled = reduce(lambda x, matrix: mix_patches(matrix, x, first), pools(name), wanted.float())
            size = pooled.var(dim=-1, correction=0).clamp_min(1e-6)
        error = ((ours[name].float() - pooled).square().mean(dim=-1) / size).log1p()  # (B, N)
        apart = [error[:, :first], error[:, first:]] if first else [error]
        errors.append(torch.stack([part.mean() for part in apart]).mean())
    return torch.stack(errors).mean()


def _pools(student: Student) -> Callable[[str], list[Tensor]]:
    """For the name of a hidden state, the matrices that its tokens have passed."""
    weights = dict(student.named_parameters())
    matrices = [weights.get(f"blocks.{i}{POOL}") for i in range(student.spec.depth)]

    def passed(name: str) -> list[Tensor]:
        layer = len(matrices) if name == "residual" else int(name.split(".")[1]) + 1
        return [matrix.detach() for matrix in matrices[:layer] if matrix is not None]

    return passed

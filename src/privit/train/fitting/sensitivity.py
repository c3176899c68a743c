"""How much a model's prediction depends on each of its tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from privit.spec import PAPER_KINDS
from privit.train.student.vit import Student


def prediction_probe(logits: Tensor, generator: torch.Generator) -> Tensor:
    """A scalar whose squared gradient is, on average over the draws, the curvature of KL at these logits.

    The Fisher matrix of a softmax is the sum over classes of p_k g_k g_k^T with g_k the gradient of
    log p_k; random signs in front of sqrt(p_k) log p_k give it from one backward pass (Hutchinson).
    """
    logs = logits.log_softmax(-1)
    signs = torch.randint(0, 2, logits.shape, generator=generator).to(logits) * 2 - 1
    return (signs * logs.detach().exp().sqrt() * logs).sum()


def token_weights(model: Student, images: Tensor, batch_size: int, seed: int) -> dict[str, list[Tensor]]:
    """For each kind and layer, how much each position counts (N,), 1 on average.

    Half of it is the same for all positions, half follows the squared gradient of the prediction at
    the tokens just behind the kind's sites. (By image as well, the few images the model is unsure of would
    outweigh all others; without the equal half, only the class token would count in the last layer.)
    """
    generator = torch.Generator().manual_seed(seed)
    depth, tokens = model.spec.depth, model.spec.tokens
    behind = {f"blocks.{i}.residual2": ("softmax", i) for i in range(depth)}
    behind |= {f"blocks.{i + 1}.residual1": ("gelu", i) for i in range(depth - 1)}
    behind |= {"residual": ("gelu", depth - 1)}
    sums = {kind: [torch.zeros(tokens, dtype=torch.float64) for _ in range(depth)] for kind in PAPER_KINDS}
    for start in range(0, len(images), batch_size):
        seen: dict[str, Tensor] = {}
        # The model's own parameters need no gradient; the images' keeps the graph.
        batch = images[start : start + batch_size].clone().requires_grad_()
        logits = model(batch, lambda name, value, seen=seen: seen.update({name: value}))
        names = [name for name in seen if name in behind]
        gradients = torch.autograd.grad(prediction_probe(logits, generator), [seen[name] for name in names])
        for name, gradient in zip(names, gradients, strict=True):
            kind, layer = behind[name]
            sums[kind][layer] += gradient.square().mean(-1).sum(0)
    return {kind: [_half_equal(total) for total in layers] for kind, layers in sums.items()}


def _half_equal(total: Tensor) -> Tensor:
    relative = total / total.mean().clamp_min(torch.finfo(total.dtype).tiny)
    return ((relative + 1) / 2).float()

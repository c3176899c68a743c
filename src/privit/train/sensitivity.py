"""How much a model's prediction depends on each of its tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from privit.spec import KINDS
from privit.train.vit import Student


def prediction_probe(logits: Tensor, generator: torch.Generator) -> Tensor:
    """A scalar whose squared gradient is, on average over the draws, the curvature of KL at these logits.

    The Fisher matrix of a softmax is the sum over classes of p_k g_k g_k^T with g_k the gradient of
    log p_k; random signs in front of sqrt(p_k) log p_k give it from one backward pass (Hutchinson).
    """
    logs = logits.log_softmax(-1)
    signs = torch.randint(0, 2, logits.shape, generator=generator).to(logits) * 2 - 1
    return (signs * logs.detach().exp().sqrt() * logs).sum()


def token_weights(model: Student, images: Tensor, batch_size: int, seed: int) -> dict[str, list[Tensor]]:
    """For each kind and layer, the mean squared gradient of the prediction at each token (n, N), mean 1.

    The gradient is that of the tokens just behind the kind's sites, after the residual is added.
    """
    generator = torch.Generator().manual_seed(seed)
    depth = model.spec.depth
    behind = {f"blocks.{i}.residual2": ("softmax", i) for i in range(depth)}
    behind |= {f"blocks.{i + 1}.residual1": ("gelu", i) for i in range(depth - 1)}
    behind |= {"residual": ("gelu", depth - 1)}
    found: dict[str, list[list[Tensor]]] = {kind: [[] for _ in range(depth)] for kind in KINDS}
    for start in range(0, len(images), batch_size):
        seen: dict[str, Tensor] = {}
        # The model's own parameters need no gradient; the images' keeps the graph.
        batch = images[start : start + batch_size].clone().requires_grad_()
        logits = model(batch, lambda name, value, seen=seen: seen.update({name: value}))
        names = [name for name in seen if name in behind]
        gradients = torch.autograd.grad(prediction_probe(logits, generator), [seen[name] for name in names])
        for name, gradient in zip(names, gradients, strict=True):
            kind, layer = behind[name]
            found[kind][layer].append(gradient.square().mean(-1))
    whole = {kind: [torch.cat(parts) for parts in layers] for kind, layers in found.items()}
    return {kind: [w / w.mean().clamp_min(1e-30) for w in layers] for kind, layers in whole.items()}

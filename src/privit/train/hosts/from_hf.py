"""Hugging Face's `ViTForImageClassification`, read into a spec and canonical weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from privit.spec import Block, Spec
from privit.train.hosts.from_timm import array, refusal

GELU_NAMES = {
    "gelu": "erf",
    "gelu_python": "erf",
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "gelu_pytorch_tanh": "tanh",
}
"""What a configuration calls its activation, and the variant it is."""

BLOCK_NAMES = {
    "layernorm_before": "norm1",
    "attention.o_proj": "out",
    "layernorm_after": "norm2",
    "mlp.fc1": "up",
    "mlp.fc2": "down",
}
"""Their layers of a block, and ours; queries, keys and values are joined apart from these."""


def convert_hf(model: nn.Module, name: str | None = None) -> tuple[Spec, dict[str, np.ndarray]]:
    """Spec and canonical weights of a `ViTForImageClassification`; refuses any other model."""
    from transformers import ViTForImageClassification

    config: Any = getattr(model, "config", None)
    name = name or str(getattr(config, "_name_or_path", "") or "the model")
    if type(model) is not ViTForImageClassification:
        raise refusal(
            name,
            [
                f"it is a {type(model).__name__}",
                "and of Hugging Face's models only a plain ViT is known here",
            ],
        )
    reasons = _reasons(config)
    if reasons:
        raise refusal(name, reasons)
    spec = _spec(model, config)
    weights, used = _weights(model, spec)
    extra = sorted(set(model.state_dict()) - used)
    if extra:
        raise refusal(name, [f"it has weights that the student has no place for: {', '.join(extra[:5])}"])
    return spec, weights


def _reasons(config: Any) -> list[str]:
    head_width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    checks = {
        f"its activation is {config.hidden_act!r}, not a GELU": config.hidden_act not in GELU_NAMES,
        f"its images are not square: {config.image_size}": not isinstance(config.image_size, int),
        f"its patches are not square: {config.patch_size}": not isinstance(config.patch_size, int),
        "its heads do not fill the width": head_width * config.num_attention_heads != config.hidden_size,
    }
    return [reason for reason, found in checks.items() if found]


def _spec(model: Any, config: Any) -> Spec:
    block = Block(heads=config.num_attention_heads, mlp_width=config.intermediate_size)
    return Spec(
        image_size=config.image_size,
        patch_size=config.patch_size,
        channels=config.num_channels,
        width=config.hidden_size,
        classes=getattr(model.classifier, "out_features", 0),
        blocks=(block,) * config.num_hidden_layers,
        norm_eps=config.layer_norm_eps,
        gelu="tanh" if GELU_NAMES[config.hidden_act] == "tanh" else "erf",
    )


def _weights(model: nn.Module, spec: Spec) -> tuple[dict[str, np.ndarray], set[str]]:
    """Canonical weights, and the names in their state dict that went into them."""
    state: dict[str, Tensor] = model.state_dict()
    weights: dict[str, np.ndarray] = {}
    used: set[str] = set()

    def read(name: str, width: int) -> np.ndarray:
        used.add(name)
        # `qkv_bias=False` leaves the biases out.
        return array(state[name]) if name in state else np.zeros(width, np.float32)

    def take(theirs: str, ours: str) -> None:
        weights[f"{ours}.weight"] = read(f"{theirs}.weight", 0)
        weights[f"{ours}.bias"] = read(f"{theirs}.bias", len(weights[f"{ours}.weight"]))

    take("vit.embeddings.patch_embeddings.projection", "patch")
    weights["patch.weight"] = weights["patch.weight"].reshape(spec.width, spec.patch_values)
    weights["class_token"] = read("vit.embeddings.cls_token", 0).reshape(spec.width)
    weights["position"] = read("vit.embeddings.position_embeddings", 0)[0]
    for i in range(spec.depth):
        theirs, ours = f"vit.layers.{i}.", f"blocks.{i}."
        for name, canonical in BLOCK_NAMES.items():
            take(theirs + name, ours + canonical)
        for part in ("weight", "bias"):
            rows = [read(f"{theirs}attention.{p}_proj.{part}", spec.width) for p in ("q", "k", "v")]
            weights[f"{ours}qkv.{part}"] = np.concatenate(rows)
    take("vit.layernorm", "norm")
    if spec.classes:
        take("classifier", "head")
    return weights, used

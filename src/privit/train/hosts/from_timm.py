"""timm's vision transformers, read into a spec and canonical weights.

What may occur is listed; anything else is refused, so that no model is converted into something it is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from timm.layers import (
    Attention,
    DropPath,
    LayerNorm,
    LayerNormFp32,
    LayerScale,
    Mlp,
    PatchDropout,
    PatchEmbed,
)
from timm.layers.activations import GELU, GELUTanh
from timm.models.vision_transformer import Block as TimmBlock
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from privit.errors import ModelRefused
from privit.spec import Block, Spec

NORMS = (nn.LayerNorm, LayerNorm, LayerNormFp32)
ACTIVATIONS = (nn.GELU, GELU, GELUTanh)
SILENT = (nn.Identity, nn.Dropout, DropPath, PatchDropout, nn.Sequential)
"""Modules that change nothing when a model is evaluated."""

KNOWN = {
    VisionTransformer,
    PatchEmbed,
    TimmBlock,
    Attention,
    Mlp,
    LayerScale,
    nn.Conv2d,
    nn.Linear,
    *NORMS,
    *ACTIVATIONS,
    *SILENT,
}
"""Every module that the student has a counterpart for."""

REFUSED = {
    "VisionTransformerDistilled": "it has a distillation token and a second head",
    "SwinTransformer": "its attention is over shifted windows",
    "Eva": "it rotates queries and keys by position",
}
"""Reasons for models that people are likely to try."""

FITTING = "give a plain timm vit_*, deit_* or deit3_* model, or a Hugging Face ViT"


def convert_timm(model: nn.Module, name: str | None = None) -> tuple[Spec, dict[str, np.ndarray]]:
    """Spec and canonical weights of a timm vision transformer; refuses what the student cannot represent."""
    name = name or str((getattr(model, "pretrained_cfg", None) or {}).get("architecture") or "the model")
    check_timm(model, name)
    spec = _spec(model)
    weights, used = _weights(model, spec)
    extra = sorted(set(model.state_dict()) - used)
    if extra:
        raise refusal(name, [f"it has weights that the student has no place for: {', '.join(extra[:5])}"])
    return spec, weights


def check_timm(model: nn.Module, name: str) -> None:
    """Refuses a model, which may be on torch's meta device, by its name and with every reason."""
    reasons = _model_reasons(model) or _part_reasons(model)
    if reasons:
        raise refusal(name, reasons)


def refusal(name: str, reasons: list[str]) -> ModelRefused:
    """The error that says why a model does not fit, every reason once."""
    shown = list(dict.fromkeys(reasons))[:5]
    return ModelRefused(f"{name} does not fit the student: {'; '.join(shown)}", FITTING)


def _model_reasons(model: Any) -> list[str]:
    if type(model) is not VisionTransformer:
        kind = type(model).__name__
        return [f"its class is {kind}: {REFUSED.get(kind, 'only plain vision transformers are known here')}"]
    reasons = _unknown_modules(model)
    embed, pooling = model.patch_embed, model.global_pool
    checks = {
        f"it has {model.num_reg_tokens} register tokens": model.num_reg_tokens,
        "it normalises before the first block (pre-norm, as CLIP does)": not _silent(model.norm_pre),
        "it has no learned position embedding": model.pos_embed is None,
        # A dynamic size alone is fine: at one size it is the plain model.
        "it pads images to whole patches": getattr(embed, "dynamic_img_pad", False),
        f"it pools by {pooling!r}, not by class token or mean": pooling not in ("token", "avg"),
        "it pools by attention": model.attn_pool is not None,
        "its mean includes the class token": pooling == "avg"
        and model.pool_include_prefix
        and model.has_class_token,
        "it normalises its patches": not _silent(getattr(embed, "norm", None)),
        "it has no final LayerNorm": _silent(model.norm) and _silent(model.fc_norm),
        "it has two final LayerNorms": not _silent(model.norm) and not _silent(model.fc_norm),
        "its head is not one linear layer": type(model.head) not in (nn.Linear, nn.Identity),
    }
    reasons += [reason for reason, found in checks.items() if found]
    if type(embed) is PatchEmbed:
        sides = {*embed.img_size}, {*embed.patch_size}
        if len(sides[0]) > 1 or len(sides[1]) > 1:
            reasons.append(f"its images ({embed.img_size}) or patches ({embed.patch_size}) are not square")
    return reasons


def _unknown_modules(model: nn.Module) -> list[str]:
    """One reason per unknown type, outermost modules first."""
    found: dict[str, str] = {}
    inside: tuple[str, ...] = ()
    for where, module in model.named_modules():
        if type(module) not in KNOWN and not where.startswith(inside or "-"):
            inside += (where + ".",)
            found.setdefault(type(module).__name__, where)
    return [f"its module {where} is of class {kind}" for kind, where in found.items()]


def _block_reasons(block: Any, width: int) -> list[str]:
    """Only called once every module is of a known type."""
    if type(block) is not TimmBlock:
        return [f"is a {type(block).__name__}"]
    attention, mlp = block.attn, block.mlp
    if type(attention) is not Attention or type(mlp) is not Mlp:
        return [f"is made of {type(attention).__name__} and {type(mlp).__name__}"]
    checks = {
        "normalises queries and keys": not (_silent(attention.q_norm) and _silent(attention.k_norm)),
        "normalises inside attention": not _silent(attention.norm),
        "gates its attention": attention.gate is not None,
        "has heads that do not fill the width": attention.num_heads * attention.head_dim != width,
        "normalises inside the MLP": not _silent(mlp.norm),
        f"has {type(mlp.act).__name__} instead of GELU": type(mlp.act) not in ACTIVATIONS,
        "has an MLP of convolutions": type(mlp.fc1) is not nn.Linear,
        "scales only one of its two branches": type(block.ls1) is not type(block.ls2),
    }
    return [reason for reason, found in checks.items() if found]


def _part_reasons(model: Any) -> list[str]:
    found: dict[str, int] = {}
    for i, block in enumerate(model.blocks):
        for reason in _block_reasons(block, model.embed_dim):
            found.setdefault(reason, i)
    reasons = [f"block {i} {reason}" for reason, i in found.items()]
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    if len({norm.eps for norm in norms}) > 1:
        reasons.append("its LayerNorms differ in eps")
    if any(norm.weight is None for norm in norms):
        reasons.append("it has LayerNorms without weights")
    variants = {_gelu(m) for m in model.modules() if isinstance(m, ACTIVATIONS)}
    if len(variants) > 1:
        reasons.append("its GELUs are of two variants")
    return reasons


def _silent(module: nn.Module | None) -> bool:
    return module is None or isinstance(module, nn.Identity)


def _gelu(module: nn.Module) -> str:
    return "tanh" if isinstance(module, GELUTanh) or getattr(module, "approximate", "") == "tanh" else "erf"


def _spec(model: Any) -> Spec:
    blocks = tuple(
        Block(b.attn.num_heads, b.mlp.fc1.out_features, isinstance(b.ls1, LayerScale)) for b in model.blocks
    )
    after_pool = not _silent(model.fc_norm)
    final = model.fc_norm if after_pool else model.norm
    return Spec(
        image_size=model.patch_embed.img_size[0],
        patch_size=model.patch_embed.patch_size[0],
        channels=model.patch_embed.proj.in_channels,
        width=model.embed_dim,
        classes=getattr(model.head, "out_features", 0),
        blocks=blocks,
        class_token=model.has_class_token,
        pooling="cls" if model.global_pool == "token" else "mean",
        final_norm="after_pool" if after_pool else "before_pool",
        norm_eps=final.eps,
        gelu="tanh" if _gelu(model.blocks[0].mlp.act) == "tanh" else "erf",
    )


BLOCK_NAMES = {
    "norm1": "norm1",
    "attn.qkv": "qkv",
    "attn.proj": "out",
    "norm2": "norm2",
    "mlp.fc1": "up",
    "mlp.fc2": "down",
}
"""timm's layers of a block, and ours."""


def _weights(model: Any, spec: Spec) -> tuple[dict[str, np.ndarray], set[str]]:
    """Canonical weights, and the names in timm's state dict that went into them."""
    state: dict[str, Tensor] = model.state_dict()
    weights: dict[str, np.ndarray] = {}
    used = {"patch_embed.proj.weight", "pos_embed"}

    def take(theirs: str, ours: str, width: int) -> None:
        weights[f"{ours}.weight"] = array(state[f"{theirs}.weight"])
        # The student always adds a bias; a layer without one adds zeros.
        bias = state.get(f"{theirs}.bias")
        weights[f"{ours}.bias"] = np.zeros(width, np.float32) if bias is None else array(bias)
        used.update((f"{theirs}.weight", f"{theirs}.bias"))

    take("patch_embed.proj", "patch", spec.width)
    weights["patch.weight"] = weights["patch.weight"].reshape(spec.width, spec.patch_values)
    position = array(state["pos_embed"])[0]
    if spec.class_token:
        weights["class_token"] = array(state["cls_token"]).reshape(spec.width)
        used.add("cls_token")
        if model.no_embed_class:
            position = np.concatenate([np.zeros((1, spec.width), np.float32), position])
    weights["position"] = position
    for i, block in enumerate(spec.blocks):
        widths = {"qkv": 3 * spec.width, "up": block.mlp_width}
        for theirs, ours in BLOCK_NAMES.items():
            take(f"blocks.{i}.{theirs}", f"blocks.{i}.{ours}", widths.get(ours, spec.width))
        if block.layer_scale:
            for number in (1, 2):
                weights[f"blocks.{i}.scale{number}"] = array(state[f"blocks.{i}.ls{number}.gamma"])
                used.add(f"blocks.{i}.ls{number}.gamma")
    take("fc_norm" if spec.final_norm == "after_pool" else "norm", "norm", spec.width)
    if spec.classes:
        take("head", "head", spec.classes)
    return weights, used


def array(tensor: Tensor) -> np.ndarray:
    """A tensor's values as a float32 array of its own."""
    return np.array(tensor.detach().cpu().float().numpy())

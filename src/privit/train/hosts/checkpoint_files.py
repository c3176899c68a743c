"""Weights that others saved: safetensors and torch state dicts, read without running any code in them."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from privit.errors import RequestError

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".tar")
WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model")
"""Under what training scripts keep the weights beside other things, the better ones first."""


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Names and tensors in a file, in timm's names, unwrapped from what scripts put around them."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise RequestError(
            f"{path} does not exist",
            "give the path of a .safetensors or .pth file, or put it into the folder that $PRIVIT_DATA names",
        )
    if path.suffix not in SUFFIXES:
        raise RequestError(
            f"{path} ends in {path.suffix!r}, but one of {', '.join(SUFFIXES)} was expected",
            "save the weights as safetensors",
        )
    try:
        if path.suffix == ".safetensors":
            found: Any = load_file(str(path))
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file can raise nearly anything here
        raise RequestError(
            f"{path} is cut short, or holds more than tensors: {str(error).splitlines()[0][:200]}",
            "copy it again, or save its state dict as safetensors",
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(found, dict) and isinstance(found.get(wrapper), dict):
            found = found[wrapper]
            break
    if not isinstance(found, dict) or not found or not all(isinstance(v, Tensor) for v in found.values()):
        raise RequestError(f"{path} holds no state dict", "save model.state_dict() as safetensors")
    # DistributedDataParallel prefixes every name; Facebook's DeiT III names its LayerScales differently.
    state = {key.removeprefix("module."): value for key, value in found.items()}
    renamed = {"gamma_1": "ls1.gamma", "gamma_2": "ls2.gamma"}
    return {
        ".".join(renamed.get(piece, piece) for piece in key.split(".")): value for key, value in state.items()
    }


def position_grid(state: dict[str, Tensor], without_class: bool) -> int | None:
    """Patches per side for which the file holds position embeddings; None where it holds none."""
    if "pos_embed" not in state or state["pos_embed"].ndim != 3:
        return None
    patches = state["pos_embed"].shape[1] - int("cls_token" in state and not without_class)
    side = math.isqrt(patches)
    return side if side * side == patches else None


def build_from_shapes(state: dict[str, Tensor], settings: dict[str, Any], where: str) -> nn.Module:
    """The timm model whose weights these are; sizes from the shapes, heads from `settings`."""
    from timm.models.vision_transformer import VisionTransformer

    if "heads" not in settings:
        raise RequestError(
            f"{where} does not say how many heads its model has, and the shapes do not show it",
            f"give it ({where}:heads=3), or name the timm model: timm:NAME@{where}",
        )
    try:
        sizes = _sizes(state)
    except KeyError as error:
        raise RequestError(
            f"{where} lacks {error.args[0]}, so it is not a vision transformer in timm's names",
            "for a Hugging Face model give its folder: hf:FOLDER",
        ) from error
    eps, mean = settings.get("eps", 1e-6), settings.get("pooling") == "mean" or "cls_token" not in state
    model = VisionTransformer(
        **sizes,
        num_heads=settings["heads"],
        global_pool="avg" if mean else "token",
        fc_norm="fc_norm.weight" in state,
        norm_layer=partial(nn.LayerNorm, eps=eps),
        act_layer=partial(nn.GELU, approximate="tanh" if settings.get("gelu") == "tanh" else "none"),
    )
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        lines = " ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise RequestError(
            f"{where} is not a plain vision transformer: {lines[:300]}", "name its model: timm:NAME@FILE"
        ) from error
    return model.eval()


def _sizes(state: dict[str, Tensor]) -> dict[str, Any]:
    """Arguments of timm's VisionTransformer that the shapes of its weights decide."""
    width, channels, patch, _ = state["patch_embed.proj.weight"].shape
    positions = state["pos_embed"].shape[1]
    # One more position than a square number is a class token's.
    without_class = math.isqrt(positions) ** 2 == positions
    side = math.isqrt(positions if without_class else positions - 1)
    depth = 1 + max(int(key.split(".")[1]) for key in state if key.startswith("blocks."))
    return {
        "img_size": side * patch,
        "patch_size": patch,
        "in_chans": channels,
        "num_classes": len(state["head.weight"]) if "head.weight" in state else 0,
        "embed_dim": width,
        "depth": depth,
        "mlp_ratio": len(state["blocks.0.mlp.fc1.weight"]) / width,
        "qkv_bias": "blocks.0.attn.qkv.bias" in state,
        "init_values": 1e-5 if "blocks.0.ls1.gamma" in state else None,
        "class_token": "cls_token" in state,
        "no_embed_class": without_class and "cls_token" in state,
    }

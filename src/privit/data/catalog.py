"""Architectures by name, without weights and without torch: for cost and bench before any training."""

from __future__ import annotations

import re
from dataclasses import replace

from privit.errors import RequestError
from privit.spec import Spec, vit_spec

# Width, depth and heads of ViT (Dosovitskiy et al. 2020, Steiner et al. 2021) and
# DeiT (Touvron et al. 2020, 2022).
SIZES = {
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "medium": (512, 12, 8),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}
FAMILIES = {
    "vit": ("tiny", "small", "base", "large", "huge"),
    "deit": ("tiny", "small", "base"),
    "deit3": ("small", "medium", "base", "large", "huge"),
}
# Backbones of MPCViT (Zeng et al. 2022), as the PriViT paper's table of base models lists them.
MPCVIT = {
    "mpcvit_cifar": vit_spec(32, 4, 256, 7, 4, classes=10, mlp_width=512),
    "mpcvit_tinyimagenet": vit_spec(64, 4, 192, 9, 12, classes=200, mlp_width=384),
}
_NAME = re.compile(r"(vit|deit|deit3)_([a-z]+)_patch(\d+)_(\d+)(\..+)?")


def catalog_spec(name: str, image_size: int | None = None, classes: int = 1000) -> Spec:
    """The spec of `vit_tiny_patch16_224` and its like, at another image size if one is given."""
    bare = name.removeprefix("timm:")
    if bare in MPCVIT:
        return MPCVIT[bare] if image_size is None else replace(MPCVIT[bare], image_size=image_size)
    match = _NAME.fullmatch(bare)
    if match is None or match[2] not in FAMILIES[match[1]]:
        known = ", ".join(f"{family}_{size}_patchP_S" for family, sizes in FAMILIES.items() for size in sizes)
        raise RequestError(
            f"no architecture is called {name!r}", f"known: {known}, {', '.join(MPCVIT)}; P and S are numbers"
        )
    width, depth, heads = SIZES[match[2]]
    side = image_size or int(match[4])
    return vit_spec(side, int(match[3]), width, depth, heads, classes, layer_scale=match[1] == "deit3")

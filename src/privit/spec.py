"""What a vision transformer is made of: sizes, sites and the shapes of its weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from privit.errors import RequestError

Pooling = Literal["cls", "mean"]
GeluVariant = Literal["erf", "tanh"]
Shape = tuple[int, ...]

KINDS = ("gelu", "softmax", "norm")
"""The kinds of nonlinearity that have sites, in the order in which a block meets them last to first."""
PAPER_KINDS = ("gelu", "softmax")
"""The kinds that the paper replaces, and that are searched unless told otherwise."""


def switched_kinds(named: Iterable[str]) -> tuple[str, ...]:
    """The kinds that a search keeps account of: the paper's, and LayerNorms where they are named."""
    return tuple(kind for kind in KINDS if kind in (*PAPER_KINDS, *named))


NORM_PLACES = ("norm1", "norm2")
"""The LayerNorms of a block, in order; the last block's sites also hold the model's final one."""


@dataclass(frozen=True)
class Block:
    """One encoder block; blocks may differ from each other.

    `pool` is to how many patches those before it are mixed by a matrix, class token untouched; 0: they stay.
    """

    heads: int
    mlp_width: int
    layer_scale: bool = False
    pool: int = 0


@dataclass(frozen=True)
class Spec:
    """A vision transformer without its weights.

    `final_norm` says whether the last LayerNorm stands before or after pooling;
    `class_token` may be true with mean pooling (the mean then leaves it out).
    """

    image_size: int
    patch_size: int
    channels: int
    width: int
    classes: int
    blocks: tuple[Block, ...]
    class_token: bool = True
    pooling: Pooling = "cls"
    final_norm: Literal["before_pool", "after_pool"] = "before_pool"
    norm_eps: float = 1e-6
    gelu: GeluVariant = "erf"

    def __post_init__(self) -> None:
        sizes = {"image size": self.image_size, "patch size": self.patch_size, "width": self.width}
        sizes |= {"number of classes": self.classes}
        sizes |= {f"block {i}: mlp_width": block.mlp_width for i, block in enumerate(self.blocks)}
        problems = [
            f"{name} is {size}, but at least 1 was expected" for name, size in sizes.items() if size < 1
        ]
        if self.channels not in (1, 3):
            problems.append(f"{self.channels} channels: a picture has 1 (grey) or 3 (RGB)")
        if self.patch_size > 0 and self.image_size % self.patch_size:
            problems.append(f"image size {self.image_size} is not divisible by patch size {self.patch_size}")
        problems += [
            f"block {i}: width {self.width} is not divisible by {block.heads} heads"
            for i, block in enumerate(self.blocks)
            if block.heads < 1 or self.width % block.heads
        ]
        if self.pooling == "cls" and not self.class_token:
            problems.append("pooling is by class token, but the model has none")
        if not self.blocks:
            problems.append("the model has no blocks")
        problems += self._pool_problems()
        problems += _not_among_choices(self)
        if not 0 < self.norm_eps < math.inf:
            problems.append(f"norm_eps is {self.norm_eps}, but a number above 0 was expected")
        if problems:
            raise RequestError(
                "; ".join(problems),
                "the image size must be a multiple of the patch size, and the width of the number of heads",
            )

    def _pool_problems(self) -> list[str]:
        found, patches = [], self.patches if self.patch_size > 0 else 0
        for i, block in enumerate(self.blocks):
            if block.pool and not 0 < block.pool < patches:
                found.append(f"block {i} pools to {block.pool} patches, but {patches} reach it")
            patches = block.pool or patches
        return found

    @property
    def patches(self) -> int:
        """How many patches an image is cut into."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def tokens(self) -> int:
        """Sequence length before any pool, class token included."""
        return self.patches + int(self.class_token)

    def tokens_in(self, layer: int) -> int:
        """Sequence length inside one block, class token included; `depth` asks for what the head reads."""
        pools = [block.pool for block in self.blocks[: layer + 1] if block.pool]
        return (pools[-1] if pools else self.patches) + int(self.class_token)

    def patches_before(self, layer: int) -> int:
        """How many patches reach one block, before its own pool."""
        return (self.tokens_in(layer - 1) if layer else self.tokens) - int(self.class_token)

    @property
    def norms(self) -> tuple[str, ...]:
        """The name of every LayerNorm, in the order in which a token meets them."""
        blocks = (f"blocks.{i}.{place}" for i in range(self.depth) for place in NORM_PLACES)
        return (*blocks, "norm")

    @property
    def patch_values(self) -> int:
        """Values in one patch: channels x patch x patch."""
        return self.channels * self.patch_size**2

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def to_json(self) -> dict[str, Any]:
        """Plain data from which `Spec.from_json` makes an equal spec; pools are named where there are any."""
        data = asdict(self)
        data["blocks"] = [
            {name: value for name, value in block.items() if value or name != "pool"}
            for block in data["blocks"]
        ]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Spec:
        """The spec that `to_json` described; refuses sizes that are no whole numbers, such as 8.0."""
        fields = dict(data)
        whole = [
            (name, fields[name]) for name in ("image_size", "patch_size", "channels", "width", "classes")
        ]
        whole += [(name, block[name]) for block in fields["blocks"] for name in ("heads", "mlp_width")]
        whole += [("pool", block["pool"]) for block in fields["blocks"] if "pool" in block]
        if wrong := [
            f"{name} is {value!r}, not a whole number" for name, value in whole if type(value) is not int
        ]:
            raise RequestError("; ".join(wrong), "write sizes as whole numbers")
        fields["blocks"] = tuple(Block(**block) for block in fields["blocks"])
        return cls(**fields)


def vit_spec(
    image_size: int, patch_size: int, width: int, depth: int, heads: int, classes: int, **changes: Any
) -> Spec:
    """A plain ViT with equal blocks; the MLP is four times as wide as the tokens unless told otherwise."""
    mlp_width = changes.pop("mlp_width", 4 * width)
    block = Block(heads=heads, mlp_width=mlp_width, layer_scale=changes.pop("layer_scale", False))
    channels = changes.pop("channels", 3)
    return Spec(image_size, patch_size, channels, width, classes, (block,) * depth, **changes)


def with_image_size(spec: Spec, image_size: int) -> Spec:
    """The same model at another image size; position embeddings must be resampled to fit."""
    return replace(spec, image_size=image_size)


def with_tokens(spec: Spec, tokens: Sequence[int]) -> Spec:
    """The same model with so many tokens in each block, class token included; the first keeps what it has.

    A block before which the number falls gets a pool.
    """
    hint = f"give {spec.depth} numbers that never rise, starting at {spec.tokens}"
    if len(tokens) != spec.depth:
        raise RequestError(f"{len(tokens)} token counts given, but the model has {spec.depth} blocks", hint)
    blocks, before = [], spec.tokens
    for i, (block, count) in enumerate(zip(spec.blocks, tokens, strict=True)):
        if count > before:
            raise RequestError(f"block {i} is to have {count} tokens, but only {before} reach it", hint)
        if count <= int(spec.class_token):
            raise RequestError(f"block {i} is to have {count} tokens, which leaves no patch", hint)
        blocks.append(replace(block, pool=0 if count == before else count - int(spec.class_token)))
        before = count
    return replace(spec, blocks=tuple(blocks))


def without_pools(spec: Spec) -> Spec:
    """The same model with every patch to the end."""
    return replace(spec, blocks=tuple(replace(block, pool=0) for block in spec.blocks))


@dataclass(frozen=True)
class Granularity:
    """How finely each kind is switched."""

    gelu: Literal["token", "element", "layer"] = "token"
    softmax: Literal["row", "head", "layer"] = "row"
    norm: Literal["layer", "class"] = "layer"

    def __post_init__(self) -> None:
        if problems := _not_among_choices(self):
            raise RequestError("; ".join(problems), "switch whole layers, or something finer within them")

    def of(self, kind: str) -> str:
        """The granularity of one kind."""
        return str(getattr(self, kind))


def _not_among_choices(described: Spec | Granularity) -> list[str]:
    """Fields that hold something else than their type's choices, in sentences."""
    hints = get_type_hints(type(described)).items()
    choices = {name: get_args(hint) for name, hint in hints if get_origin(hint) is Literal}
    return [
        f"{name} is {getattr(described, name)!r}, but {', '.join(known[:-1])} or {known[-1]} was expected"
        for name, known in choices.items()
        if getattr(described, name) not in known
    ]


def sites(spec: Spec, granularity: Granularity) -> dict[str, list[Shape]]:
    """For each kind, the shape of the array of sites in each layer.

    gelu: token (N,), element (N, mlp_width), layer (). softmax: row (heads, N), head (heads,), layer ().
    norm: layer (2,) for norm1 and norm2, class (2, 2) for the class token and the patches of each; in the
    last block the final LayerNorm is a third. N is the number of tokens in that block.
    """
    gelu = {"token": lambda b, n: (n,), "element": lambda b, n: (n, b.mlp_width), "layer": lambda b, n: ()}
    softmax = {"row": lambda b, n: (b.heads, n), "head": lambda b, n: (b.heads,), "layer": lambda b, n: ()}
    classes = (1 + int(spec.class_token),) if granularity.norm == "class" else ()
    counted = [(block, spec.tokens_in(i)) for i, block in enumerate(spec.blocks)]
    places = len(NORM_PLACES)
    return {
        "gelu": [gelu[granularity.gelu](*each) for each in counted],
        "softmax": [softmax[granularity.softmax](*each) for each in counted],
        "norm": [(places + (i + 1 == spec.depth), *classes) for i in range(spec.depth)],
    }


def weight_shapes(spec: Spec) -> dict[str, Shape]:
    """Name and shape of every weight, in torch's (out, in) layout, in a fixed order.

    The position embedding always has a row per token; a model that embeds no position
    for its class token has zeros there. Parameters of operators are not among these.
    """
    width = spec.width
    shapes: dict[str, Shape] = {"patch.weight": (width, spec.patch_values), "patch.bias": (width,)}
    if spec.class_token:
        shapes["class_token"] = (width,)
    shapes["position"] = (spec.tokens, width)
    for i, block in enumerate(spec.blocks):
        at = f"blocks.{i}."
        if block.pool:
            shapes[at + "pool.weight"] = (block.pool, spec.patches_before(i))
        shapes |= {
            at + "norm1.weight": (width,),
            at + "norm1.bias": (width,),
            at + "qkv.weight": (3 * width, width),
            at + "qkv.bias": (3 * width,),
            at + "out.weight": (width, width),
            at + "out.bias": (width,),
            at + "norm2.weight": (width,),
            at + "norm2.bias": (width,),
            at + "up.weight": (block.mlp_width, width),
            at + "up.bias": (block.mlp_width,),
            at + "down.weight": (width, block.mlp_width),
            at + "down.bias": (width,),
        }
        if block.layer_scale:
            shapes |= {at + "scale1": (width,), at + "scale2": (width,)}
    return shapes | {
        "norm.weight": (width,),
        "norm.bias": (width,),
        "head.weight": (spec.classes, width),
        "head.bias": (spec.classes,),
    }

"""The student: a small vision transformer whose GELUs and softmaxes have named sites.

Read side by side with `serve/model/forward.py`, this is the same network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privit.errors import ArtifactError
from privit.operators import STAND_IN, UNTOUCHED
from privit.plan import Plan, check_plan, plan_from_ids
from privit.spec import KINDS, NORM_PLACES, PAPER_KINDS, Granularity, Shape, Spec, sites
from privit.train.student.norms import NormSites, Stream, averaging, mix_patches, normalise
from privit.train.student.switch import Sites

POOL = ".pool.weight"
Observe = Callable[[str, Tensor], None]
"""Called with a name and a value at each place whose range matters (train/fixed_point/ranges.py)."""


def ignore(name: str, value: Tensor) -> None:
    """Observes nothing."""


class Block(nn.Module):
    """One encoder block: attention, then MLP, each after a LayerNorm and beside a residual."""

    def __init__(self, spec: Spec, layer: int, gelu: Sites, softmax: Sites, norm: NormSites):
        super().__init__()
        block, width = spec.blocks[layer], spec.width
        self.heads, self.first = block.heads, int(spec.class_token)
        self.pool = None
        if block.pool:
            self.pool = nn.Linear(spec.patches_before(layer), block.pool, bias=False)
            self.pool.weight.data.copy_(averaging(spec.patches_before(layer), block.pool))
        self.norm = norm
        self.norm1 = nn.LayerNorm(width, eps=spec.norm_eps)
        self.qkv = nn.Linear(width, 3 * width)
        self.softmax = softmax
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=spec.norm_eps)
        self.up = nn.Linear(width, block.mlp_width)
        self.gelu = gelu
        self.down = nn.Linear(block.mlp_width, width)
        self.scale1 = nn.Parameter(torch.ones(width)) if block.layer_scale else None
        self.scale2 = nn.Parameter(torch.ones(width)) if block.layer_scale else None

    def forward(
        self, stream: Stream, plain: bool = True, observe: Observe = ignore, inside: bool = True
    ) -> Stream:
        """The tokens that enter (B, N, width) to those that leave; `plain` where no LayerNorm reuses any."""
        within = observe if inside else ignore
        stream = self.pooled(stream)
        observe("residual1", stream.tokens)
        x, stream = self.normalise(0, stream, plain)
        attended = self.attention(x, within)
        attended = attended if self.scale1 is None else attended * self.scale1
        observe("update1", attended)
        stream = Stream(stream.tokens + attended, stream.factor)
        observe("residual2", stream.tokens)
        x, stream = self.normalise(1, stream, plain)
        changed = self.mlp(x, within)
        changed = changed if self.scale2 is None else changed * self.scale2
        observe("update2", changed)
        return Stream(stream.tokens + changed, stream.factor)

    def pooled(self, stream: Stream) -> Stream:
        """Fewer patches, if the block has a pool; their factors are mixed by the same matrix."""
        if self.pool is None:
            return stream
        weight = self.pool.weight
        return Stream(*(None if x is None else mix_patches(weight, x, self.first) for x in stream))  # type: ignore[arg-type]

    def normalise(self, place: int, stream: Stream, plain: bool = False) -> tuple[Tensor, Stream]:
        """What attention (place 0) or the MLP (place 1) reads, and the stream that goes on."""
        return normalise((self.norm1, self.norm2)[place], self.norm, place, stream, plain)

    def attention(self, x: Tensor, observe: Observe) -> Tensor:
        """Tokens (B, N, width) to tokens."""
        batch, tokens, width = x.shape
        if self.softmax.only == "static_attn" and observe is ignore:
            return self.out(self._mixed_by_position(x))
        qkv = self.qkv(x)
        observe("qkv", qkv)
        split = qkv.view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, H, N, D)
        if self.softmax.only == "softmax" and observe is ignore:
            mixed = softmax_attention(q, k, v)
        else:
            scores = (q * (1.0 / math.sqrt(q.shape[-1]))) @ k.transpose(-2, -1)  # (B, H, N, N)
            observe("score", scores)
            weights = self.softmax(scores)
            observe("attention", weights)
            mixed = weights.to(v.dtype) @ v
        observe("mixed", mixed)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def _mixed_by_position(self, x: Tensor) -> Tensor:
        """What all static heads pass on (B, N, width), without a q, a k or a score."""
        width = x.shape[-1]
        v = F.linear(x, self.qkv.weight[2 * width :], self.qkv.bias[2 * width :])
        v = v.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, N, D)
        mixed = self.softmax.get_parameter("static_attn.w").to(v.dtype) @ v
        return mixed.transpose(1, 2).reshape(x.shape)

    def mlp(self, x: Tensor, observe: Observe) -> Tensor:
        """Tokens (B, N, width) to tokens."""
        if observe is ignore:
            return self.gelu.between(self.up, x, self.down)
        hidden = self.up(x)
        observe("hidden", hidden)
        activated = self.gelu(hidden)
        observe("activated", activated)
        return self.down(activated)


class Student(nn.Module):
    """The model of `spec` with a switch at every site of `kinds`, all at first 1: exact.

    Names in `state_dict` are the canonical weight names, `blocks.{i}.{kind}.switch` and
    `blocks.{i}.{kind}.{operator}.{parameter}`.
    """

    def __init__(
        self,
        spec: Spec,
        granularity: Granularity | None = None,
        exact: Mapping[str, str] | None = None,
        stand_in: Mapping[str, str] | None = None,
        kinds: Iterable[str] = PAPER_KINDS,
    ):
        super().__init__()
        self.spec, self.granularity = spec, granularity or Granularity()
        self.exact, self.stand_in = UNTOUCHED | dict(exact or {}), STAND_IN | dict(stand_in or {})
        self.patch = nn.Linear(spec.patch_values, spec.width)
        self.class_token = nn.Parameter(torch.zeros(spec.width)) if spec.class_token else None
        self.position = nn.Parameter(torch.zeros(spec.tokens, spec.width))
        shapes = sites(spec, self.granularity)
        self.blocks = nn.ModuleList(
            Block(
                spec,
                i,
                self._sites("gelu", i, shapes["gelu"][i]),
                self._sites("softmax", i, shapes["softmax"][i]),
                NormSites(
                    shapes["norm"][i],
                    i == 0,
                    spec.class_token,
                    spec.norm_eps,
                    self.exact["norm"],
                    self.stand_in["norm"],
                ),
            )
            for i in range(spec.depth)
        )
        if "norm" not in kinds:
            for layer in self.sites_of("norm"):
                layer.freeze(layer.ids_where(np.ones(layer.shape, dtype=bool)))
        self.norm = nn.LayerNorm(spec.width, eps=spec.norm_eps)
        self.head = nn.Linear(spec.width, spec.classes)

    def _sites(self, kind: str, layer: int, shape: Shape) -> Sites:
        block = self.spec.blocks[layer]
        owners = {"gelu": block.mlp_width, "softmax": block.heads}[kind]
        setting = {"gelu": self.spec.gelu, "softmax": self.spec.tokens_in(layer)}[kind]
        return Sites(kind, shape, owners, setting, self.exact[kind], self.stand_in[kind])

    def forward(self, images: Tensor, observe: Observe = ignore, inside: bool = True) -> Tensor:
        """Images (B, C, S, S) to logits (B, classes).

        Unless `inside`, nothing is observed within attention and MLP, which then take their short ways.
        """
        stream, plain = Stream(self.embed(images)), self.plain_norms
        for i, block in enumerate(self.blocks):
            stream = block(stream, plain, _under(f"blocks.{i}.", observe), inside)
        observe("residual", stream.tokens)
        return self.head(self.read(stream))

    @property
    def plain_norms(self) -> bool:
        """Whether every LayerNorm is exact, so that no factor is ever reused."""
        return all(layer.plain for layer in self.sites_of("norm"))

    def embed(self, images: Tensor) -> Tensor:
        """Images (B, C, S, S) to tokens (B, N, width), the class token first."""
        batch, channels, _, _ = images.shape
        patch, side = self.spec.patch_size, self.spec.image_size // self.spec.patch_size
        cut = images.reshape(batch, channels, side, patch, side, patch).permute(0, 2, 4, 1, 3, 5)
        x = self.patch(cut.reshape(batch, self.spec.patches, self.spec.patch_values))
        if self.class_token is not None:
            x = torch.cat([self.class_token.to(x.dtype).expand(batch, 1, -1), x], dim=1)
        return x + self.position

    def read(self, stream: Stream) -> Tensor:
        """Tokens (B, N, width) to what the head reads (B, width)."""
        first, one = int(self.spec.class_token), self.spec.pooling == "cls"
        rows = slice(0, 1) if one else slice(first, None)
        stream = Stream(*(None if x is None else x[:, rows] for x in stream))  # type: ignore[arg-type]
        if self.spec.final_norm == "after_pool":
            stream = Stream(*(None if x is None else x.mean(dim=1, keepdim=True) for x in stream))  # type: ignore[arg-type]
        last: NormSites = self.sites_of("norm")[-1]  # type: ignore[assignment]
        place, plain = len(NORM_PLACES), self.plain_norms
        x, _ = normalise(self.norm, last, place, stream, plain, "class" if one else "patches")
        return x.mean(dim=1)

    def sites_of(self, kind: str) -> list[Sites]:
        """The sites of one kind, layer by layer."""
        return [getattr(block, kind) for block in self.blocks]

    def switches(self, kind: str) -> list[nn.Parameter]:
        """One parameter per layer, shaped like the sites; none once the kind is frozen."""
        return [layer.switch for layer in self.sites_of(kind) if layer.switch is not None]

    def frozen(self, kind: str) -> bool:
        """Whether the kind runs by plan."""
        return all(layer.frozen for layer in self.sites_of(kind))

    def freeze(self, kind: str, ids: list[np.ndarray]) -> None:
        """From now on the kind runs by these operator ids; its switches stop being parameters."""
        layers = dict(self.plan().layers) | {kind: tuple(np.asarray(a, dtype=np.uint8) for a in ids)}
        check_plan(self.spec, Plan(self.granularity, layers))
        for layer, array in zip(self.sites_of(kind), ids, strict=True):
            layer.freeze(array)
            layer.to(self.position.device)

    def set_plan(self, plan: Plan) -> None:
        """Freezes all kinds; the plan must have this student's granularity."""
        if plan.granularity != self.granularity:
            raise ArtifactError(
                f"the plan has {plan.granularity}, but the student {self.granularity}",
                "make the student with the plan's granularity",
            )
        check_plan(self.spec, plan)
        for kind in KINDS:
            self.freeze(kind, list(plan.layers[kind]))

    def plan(self, threshold: float = 0.001) -> Plan:
        """The plan as frozen, or as cutting the switches at `threshold` now would give."""
        layers = {kind: [layer.current_ids(threshold) for layer in self.sites_of(kind)] for kind in KINDS}
        return plan_from_ids(self.granularity, layers)

    def ids_where(self, kind: str, kept: list[np.ndarray]) -> list[np.ndarray]:
        """Operator ids for `freeze`: the exact operator where `kept` is true, the stand-in elsewhere."""
        return [layer.ids_where(mask) for layer, mask in zip(self.sites_of(kind), kept, strict=True)]

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Fills the student; operator parameters that `weights` lacks keep their initial values."""
        parameters = {n: p for n, p in self.named_parameters() if not n.endswith(".switch")}
        own = {n for n in parameters if is_operator_parameter(n)}
        # A pool that the weights lack averages neighbours; one that this student has no place for goes.
        own |= {n for n in parameters if n.endswith(POOL)}
        missing = sorted(parameters.keys() - own - weights.keys())
        extra = sorted(
            n
            for n in weights.keys() - parameters.keys()
            if not (is_operator_parameter(n) or n.endswith(POOL))
        )
        wrong = [n for n in parameters if n in weights and tuple(weights[n].shape) != parameters[n].shape]
        if missing or extra or wrong:
            raise ArtifactError(
                f"the weights do not fit the student: missing {missing[:3]}, unexpected {extra[:3]}, "
                f"of another shape {wrong[:3]}",
                "load weights that were made for this spec",
            )
        with torch.no_grad():
            for name in parameters.keys() & weights.keys():
                parameters[name].copy_(torch.from_numpy(np.array(weights[name], dtype=np.float32)))

    def weights(self) -> dict[str, np.ndarray]:
        """Every weight and operator parameter as float32, by canonical name; switches are not among them."""
        return {
            name: parameter.detach().float().cpu().numpy().copy()
            for name, parameter in self.named_parameters()
            if not name.endswith(".switch")
        }


def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of heads (B, H, N, D), in torch's fused kernel."""
    if q.device.type != "cpu" or q.dtype not in (torch.bfloat16, torch.float16):
        return F.scaled_dot_product_attention(q, k, v)
    # On processors the kernel's way back takes 3.5 times as long in bfloat16 as in single precision.
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(q.float(), k.float(), v.float()).to(v.dtype)


def is_operator_parameter(name: str) -> bool:
    """Whether a weight of that name belongs to an operator at a site."""
    return any(f".{kind}." in name for kind in KINDS)


def _under(prefix: str, observe: Observe) -> Observe:
    return ignore if observe is ignore else lambda name, value: observe(prefix + name, value)

"""Every method of a comparison, as settings of one path: search or plan, fine-tune, export.

A method says what differs from the recipe's settings, which are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from privit.config import FinetuneConfig, SearchConfig, from_json, to_json
from privit.operators import FITTED
from privit.presets import Preset, with_strategy
from privit.spec import PAPER_KINDS

Route = Literal["search", "untrained", "random", "spread", "first-layers", "matching", "layers", "dense"]
"""How a method comes to its plan; all but dense are fine-tuned afterwards, unless they say otherwise."""
PLANNED = ("random", "spread", "first-layers", "layers")
"""Routes whose plans are made from a count or a cost alone."""


@dataclass(frozen=True)
class Method:
    """One line of a comparison.

    Attributes:
        search: changes to the recipe's search settings; tables in it are merged, not replaced.
        finetune: changes to the recipe's fine-tune settings.
        strategy: one of the paper's strategies 1 to 5, laid over the recipe's settings.
        retrain: fine-tune from the teacher's weights instead of those that the search left.
        fitted: the search starts from stand-ins fitted to the teacher.
        layers: how many of the last layers the layer-wise method turns to stand-ins; None: 1 to all of them.
        operators: what stands at every site, for a method without a budget.
        tuned: whether the weights are trained on under the plan.
        graph: what SPU is asked to run: all rewrites, or the dense model as written or rewritten.
        fill: sites up to which a plan found under a cost is filled with exact ones; none by default.
        student: how its models are called, with {budget} for the name of the budget.
    """

    name: str
    label: str
    about: str
    route: Route = "search"
    search: Mapping[str, Any] = field(default_factory=dict)
    finetune: Mapping[str, Any] = field(default_factory=dict)
    strategy: int | None = None
    retrain: bool = False
    fitted: bool = False
    layers: tuple[int, ...] | None = None
    operators: Mapping[str, str] = field(default_factory=dict)
    graph: Literal["all", "dense", "dense-rewritten"] = "all"
    tuned: bool = True
    fill: Mapping[str, float] = field(default_factory=dict)
    student: str = ""

    @property
    def budgeted(self) -> bool:
        """Whether the method is given a budget; the others are one point each."""
        return self.route not in ("matching", "dense")

    @property
    def many(self) -> bool:
        """Whether its models are called by their budgets."""
        return "{budget}" in self.student if self.student else self.budgeted

    def student_of(self, budget: str) -> str:
        """What the model of one budget is called: 10-fitted, mpcformer."""
        named = self.student or (f"{{budget}}-{self.name}" if self.budgeted else self.name)
        return named.replace("{budget}", budget)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that the method replaces."""
        named = self.search.get("kinds", PAPER_KINDS)
        return (named,) if isinstance(named, str) else tuple(named)

    def settings(self, base: Preset) -> Preset:
        """The recipe's settings with what this method changes; refuses what is not a setting."""
        if self.strategy is not None:
            base = with_strategy(base, self.strategy)
        return replace(
            base,
            search=from_json(SearchConfig, merged(to_json(base.search), self.search)),
            finetune=from_json(FinetuneConfig, merged(to_json(base.finetune), self.finetune)),
        )


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`; where both are tables, they are merged entry by entry."""
    result = dict(base)
    for name, value in changes.items():
        old = result.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[name] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


_HEADS = {"softmax": "head"}
_MPCVIT_ATTENTION = {"exact": {"softmax": "relu_softmax"}, "stand_in": {"softmax": "scale_attn"}}
_NO_KD = {"distill": False}

TABLE: tuple[Method, ...] = (
    Method("privit-g", "PriViT-G", "switches on GELU tokens and softmax rows, the GELUs that stay are GELUs"),
    Method("privit-r", "PriViT-R", "PriViT-G whose GELUs become ReLUs", finetune={"swap": {"gelu": "relu"}}),
    # Zeng et al. 2022: alpha per head, starting at 1, between ReLU-softmax and ScaleAttn.
    Method(
        "mpcvit",
        "MPCViT",
        "per head ReLU-softmax or ScaleAttn, by a learned parameter; every GELU stays",
        search={"kinds": ["softmax"], "granularity": _HEADS, **_MPCVIT_ATTENTION},
    ),
    # The authors' code has one beta per token between GELU and identity.
    Method(
        "mpcvit-plus",
        "MPCViT+",
        "MPCViT that also linearises GELU, token by token",
        search={"granularity": _HEADS, **_MPCVIT_ATTENTION},
    ),
    Method(
        "mpcformer",
        "MPCFormer",
        "2Quad and Quad everywhere, distilled in two stages: hidden states and scores, then logits",
        route="matching",
        operators={"gelu": "quad", "softmax": "two_quad"},
    ),
    Method("snl", "SNL", "GELU only: every softmax stays", search={"kinds": ["gelu"]}),
    Method("softmax-only", "softmax only", "every GELU stays", search={"kinds": ["softmax"]}),
    Method(
        "layerwise",
        "layer-wise",
        "PriViT's largest budget, whole layers turned to stand-ins from the last to the first",
        route="layers",
    ),
    Method("uniform", "uniform", "as many sites as PriViT, spread evenly over layers and tokens", "spread"),
    Method(
        "first-layers",
        "first layers",
        "as many sites as PriViT, whole layers from the first on",
        "first-layers",
    ),
    Method("random", "random", "as many sites as PriViT, drawn at random", "random"),
    Method("dense", "dense", "the untouched model, run as written", "dense", graph="dense"),
    Method("whole", "whole model", "the untouched model, as privit serves it", "dense"),
    Method(
        "dense-rewritten",
        "dense, rewritten",
        "the untouched model, run with the rewrites that any plan gets",
        "dense",
        graph="dense-rewritten",
    ),
    Method("privit-no-kd", "PriViT without KD", "no teacher to learn from", search=_NO_KD, finetune=_NO_KD),
    Method(
        "privit-scratch",
        "PriViT without pretraining",
        "weights start at random instead of the teacher's",
        search={"start": "random"},
    ),
    Method(
        "scale-attn",
        "ScaleAttn",
        "PriViT with s / N in the place of softmax",
        search={"stand_in": {"softmax": "scale_attn"}},
    ),
    Method(
        "uniform-attn",
        "UniformAttn",
        "PriViT with 1 / N in the place of softmax",
        search={"stand_in": {"softmax": "uniform_attn"}},
    ),
    Method(
        "privit-fitted",
        "PriViT, fitted stand-ins",
        "quadratics fitted to the teacher in the place of identity and SquaredAttn; not in the paper",
        search={"stand_in": FITTED},
        fitted=True,
    ),
    Method(
        "fitted",
        "fitted",
        "quadratics fitted to the teacher, sites chosen without training, then fine-tuned; not in the paper",
        route="untrained",
        search={"stand_in": FITTED},
    ),
    Method(
        "training-free",
        "training-free",
        "quadratics fitted to the teacher, sites chosen without training, nothing trained; not in the paper",
        route="untrained",
        search={"stand_in": FITTED},
        tuned=False,
    ),
    *(
        Method(f"strategy-{n}", f"strategy {n}", f"strategy {n} of the paper's appendix", strategy=n)
        for n in range(1, 6)
    ),
)

METHODS: dict[str, Method] = {method.name: method for method in TABLE}

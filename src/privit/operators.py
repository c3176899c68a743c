"""The one table of what can stand at a site.

An entry names an operator; `train/student/activations.py` (torch) and `serve/model/activations.py` (jax)
hold a function of the same name for each, and the parity tests are generated from this table.
Adding an operator is one entry here, one function on each side, and a cost for its key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from privit.errors import RequestError
from privit.spec import Shape, Spec

Per = Literal["channel", "head"]


@dataclass(frozen=True)
class Operator:
    """What can stand at a site.

    `exact` operators are the costly ones that count against a budget. `parameters` maps each trainable
    parameter to what it has one value per; `initial` holds its value before any fit, which for
    attention is divided by the number of tokens.
    """

    id: int
    name: str
    kind: str
    formula: str
    exact: bool = False
    parameters: dict[str, Per] = field(default_factory=dict)
    initial: dict[str, float] = field(default_factory=dict)


_CHANNEL_QUADRATIC: dict[str, Per] = {"q2": "channel", "q1": "channel", "q0": "channel"}
_HEAD_QUADRATIC: dict[str, Per] = {"c2": "head", "c1": "head", "c0": "head"}

TABLE: tuple[Operator, ...] = (
    # x is the MLP's hidden value.
    Operator(0, "gelu", "gelu", "x Phi(x)", exact=True),
    Operator(1, "identity", "gelu", "x"),
    Operator(2, "relu", "gelu", "max(x, 0)", exact=True),
    # MPCFormer (Li et al. 2022), "Quad".
    Operator(3, "quad", "gelu", "0.125 x^2 + 0.25 x + 0.5"),
    Operator(4, "affine", "gelu", "a x + b", False, {"a": "channel", "b": "channel"}, {"a": 0.5, "b": 0.25}),
    Operator(
        5,
        "quadratic",
        "gelu",
        "q2 x^2 + q1 x + q0",
        False,
        _CHANNEL_QUADRATIC,
        {"q2": 0.2, "q1": 0.5, "q0": 0.1},
    ),
    # s is one row of scores after 1/sqrt(head width), N the number of tokens.
    Operator(16, "softmax", "softmax", "exp(s) / sum exp(s)", exact=True),
    # PriViT (Dhyani et al. 2023), equation SquaredAttn and the appendix "Attention Variants".
    Operator(17, "squared_attn", "softmax", "s^2 / N"),
    Operator(18, "scale_attn", "softmax", "s / N"),
    Operator(19, "uniform_attn", "softmax", "1 / N"),
    # MPCViT (Zeng et al. 2022).
    Operator(20, "relu_softmax", "softmax", "relu(s) / (sum relu(s) + 1e-3)", exact=True),
    # MPCFormer (Li et al. 2022), "2Quad".
    Operator(21, "two_quad", "softmax", "(s + 5)^2 / sum (s + 5)^2"),
    Operator(
        22,
        "quadratic_attn",
        "softmax",
        "c2 s^2 + c1 s + c0",
        False,
        _HEAD_QUADRATIC,
        # exp to second order, over N.
        {"c2": 0.5, "c1": 1.0, "c0": 1.0},
    ),
    Operator(
        23, "linear_attn", "softmax", "c1 s + c0", False, {"c1": "head", "c0": "head"}, {"c1": 1.0, "c0": 1.0}
    ),
    Operator(24, "constant_attn", "softmax", "c0", False, {"c0": "head"}, {"c0": 1.0}),
)

BY_ID: dict[int, Operator] = {operator.id: operator for operator in TABLE}
BY_NAME: dict[str, Operator] = {operator.name: operator for operator in TABLE}


def operator(name: str, kind: str | None = None) -> Operator:
    """The entry of that name; refuses an unknown name or one of another kind."""
    found = BY_NAME.get(name)
    if found is None or (kind is not None and found.kind != kind):
        known = ", ".join(o.name for o in TABLE if kind in (None, o.kind))
        raise RequestError(
            f"no {kind or ''} operator is called {name!r}".replace("  ", " "), f"known: {known}"
        )
    return found


def parameter_shapes(spec: Spec, layer: int, entry: Operator) -> dict[str, Shape]:
    """Full weight name and shape of each parameter that `entry` owns in one layer."""
    block = spec.blocks[layer]
    sizes = {"channel": (block.mlp_width,), "head": (block.heads,)}
    prefix = f"blocks.{layer}.{entry.kind}.{entry.name}."
    return {prefix + name: sizes[per] for name, per in entry.parameters.items()}


UNTOUCHED = {"gelu": "gelu", "softmax": "softmax"}
"""What the untouched model has at its sites, by kind."""
STAND_IN = {"gelu": "identity", "softmax": "squared_attn"}
"""The paper's stand-ins."""
FITTED = {"gelu": "quadratic", "softmax": "quadratic_attn"}
"""Stand-ins whose parameters are fitted to the teacher."""

"""The one table of what can stand at a site.

An entry names an operator and says to which family it belongs, from which the program follows (`program/`);
`train/student/activations.py` (torch) and `serve/model/activations.py` (jax) hold a function of the same name
for each, and the parity tests are generated from this table. docs/adding-an-operator.md walks through it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from privit.errors import RequestError
from privit.spec import Granularity, Shape, Spec, sites

Per = Literal["channel", "head", "pair", "site"]
Family = Literal["pointwise", "normalised", "square", "linear", "constant", "static", "reused"]
DEGREES: dict[str, int] = {"square": 2, "linear": 1, "constant": 0}
"""The families of polynomials."""
UNSCORED = ("constant", "static")
"""The families of attention weights that do not depend on the scores, which then need not exist."""

# Keeps a row of only negative scores from dividing by zero (MPCViT, Zeng et al. 2022).
RELU_SOFTMAX_EPSILON = 1e-3
# The shift of MPCFormer's "2Quad" (Li et al. 2022).
TWO_QUAD_SHIFT = 5.0


@dataclass(frozen=True)
class Operator:
    """What can stand at a site.

    family: `pointwise` is a nonlinear function of each hidden value; `normalised` a positive function of each
        score over its sum along the row plus `epsilon`; `static` are weights of their own for every pair of a
        query and a key, the same for every image; the others are polynomials of that degree. At a
        LayerNorm, `normalised` is 1 / sigma of the token itself, `reused` that of an earlier LayerNorm, and a
        polynomial is one of the variance.
    exact: costly, and counts against a budget.
    parameters: of a fitted operator, each with what it has one value per (of a polynomial highest power
        first); `initial` holds its value before any fit.
    coefficients: of a public polynomial, highest power first.
    steps: what the function itself makes the parties do for each value, by the names of
        `program/operation.py`. GELU and softmax have short forms instead (`program/forms.py`).
    homogeneous: f(c x) = c f(x) for c > 0, so that it also runs on scaled hidden values.

    Initial values and coefficients of attention are divided by the number of tokens.
    """

    id: int
    name: str
    kind: str
    family: Family
    formula: str
    exact: bool = False
    parameters: dict[str, Per] = field(default_factory=dict)
    initial: dict[str, float] = field(default_factory=dict)
    coefficients: tuple[float, ...] = ()
    epsilon: float = 0.0
    steps: tuple[str, ...] = ()
    homogeneous: bool = False

    @property
    def fitted(self) -> bool:
        """Whether it has trainable parameters."""
        return bool(self.parameters)

    @property
    def powers(self) -> dict[str, int]:
        """Each parameter and the power of the input that it multiplies."""
        return {name: len(self.parameters) - 1 - place for place, name in enumerate(self.parameters)}


_CHANNEL_QUADRATIC: dict[str, Per] = {"q2": "channel", "q1": "channel", "q0": "channel"}
_HEAD_QUADRATIC: dict[str, Per] = {"c2": "head", "c1": "head", "c0": "head"}
_MAXIMUM_WITH_ZERO = ("compare_public", "multiply_bit")

TABLE: tuple[Operator, ...] = (
    # x is the MLP's hidden value.
    Operator(0, "gelu", "gelu", "pointwise", "x Phi(x)", exact=True),
    Operator(1, "identity", "gelu", "linear", "x", coefficients=(1.0, 0.0), homogeneous=True),
    Operator(
        2, "relu", "gelu", "pointwise", "max(x, 0)", exact=True, steps=_MAXIMUM_WITH_ZERO, homogeneous=True
    ),
    # MPCFormer (Li et al. 2022), "Quad".
    Operator(3, "quad", "gelu", "square", "0.125 x^2 + 0.25 x + 0.5", coefficients=(0.125, 0.25, 0.5)),
    Operator(
        4,
        "affine",
        "gelu",
        "linear",
        "a x + b",
        parameters={"a": "channel", "b": "channel"},
        initial={"a": 0.5, "b": 0.25},
    ),
    Operator(
        5,
        "quadratic",
        "gelu",
        "square",
        "q2 x^2 + q1 x + q0",
        parameters=_CHANNEL_QUADRATIC,
        initial={"q2": 0.2, "q1": 0.5, "q0": 0.1},
    ),
    # s is one row of scores after 1/sqrt(head width), N the number of tokens.
    Operator(16, "softmax", "softmax", "normalised", "exp(s) / sum exp(s)", exact=True),
    # PriViT (Dhyani et al. 2023), equation SquaredAttn and the appendix "Attention Variants".
    Operator(17, "squared_attn", "softmax", "square", "s^2 / N", coefficients=(1.0, 0.0, 0.0)),
    Operator(18, "scale_attn", "softmax", "linear", "s / N", coefficients=(1.0, 0.0)),
    Operator(19, "uniform_attn", "softmax", "constant", "1 / N", coefficients=(1.0,)),
    # MPCViT (Zeng et al. 2022).
    Operator(
        20,
        "relu_softmax",
        "softmax",
        "normalised",
        "relu(s) / (sum relu(s) + 1e-3)",
        exact=True,
        epsilon=RELU_SOFTMAX_EPSILON,
        steps=_MAXIMUM_WITH_ZERO,
    ),
    # MPCFormer (Li et al. 2022), "2Quad".
    Operator(21, "two_quad", "softmax", "normalised", "(s + 5)^2 / sum (s + 5)^2", steps=("square",)),
    Operator(
        22,
        "quadratic_attn",
        "softmax",
        "square",
        "c2 s^2 + c1 s + c0",
        parameters=_HEAD_QUADRATIC,
        # exp to second order, over N.
        initial={"c2": 0.5, "c1": 1.0, "c0": 1.0},
    ),
    Operator(
        23,
        "linear_attn",
        "softmax",
        "linear",
        "c1 s + c0",
        parameters={"c1": "head", "c0": "head"},
        initial={"c1": 1.0, "c0": 1.0},
    ),
    Operator(
        24, "constant_attn", "softmax", "constant", "c0", parameters={"c0": "head"}, initial={"c0": 1.0}
    ),
    # w has a row for every query and a column for every key.
    Operator(25, "static_attn", "softmax", "static", "w", parameters={"w": "pair"}, initial={"w": 1.0}),
    # What a LayerNorm multiplies a token of mean zero with; v is the token's variance, r the factor of the
    # nearest LayerNorm before it that is neither reused nor fixed, times the scalars of reused ones between.
    Operator(32, "layer_norm", "norm", "normalised", "1 / sqrt(v + eps)", exact=True),
    Operator(33, "reused_norm", "norm", "reused", "s r", parameters={"s": "site"}, initial={"s": 1.0}),
    Operator(
        34,
        "linear_norm",
        "norm",
        "linear",
        "a + b v",
        parameters={"b": "site", "a": "site"},
        # 1 / sqrt(v) to first order at v = 1.
        initial={"b": -0.5, "a": 1.5},
    ),
    Operator(35, "fixed_norm", "norm", "constant", "s", parameters={"s": "site"}, initial={"s": 1.0}),
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


def parameter_shapes(
    spec: Spec, layer: int, entry: Operator, granularity: Granularity | None = None
) -> dict[str, Shape]:
    """Full weight name and shape of each parameter that `entry` owns in one layer."""
    block, tokens = spec.blocks[layer], spec.tokens_in(layer)
    sizes: dict[str, Shape] = {
        "channel": (block.mlp_width,),
        "head": (block.heads,),
        "pair": (block.heads, tokens, tokens),
    }
    if entry.kind == "norm":
        sizes["site"] = sites(spec, granularity or Granularity())["norm"][layer]
    prefix = f"blocks.{layer}.{entry.kind}.{entry.name}."
    return {prefix + name: sizes[per] for name, per in entry.parameters.items()}


UNTOUCHED = {"gelu": "gelu", "softmax": "softmax", "norm": "layer_norm"}
"""What the untouched model has at its sites, by kind."""
STAND_IN = {"gelu": "identity", "softmax": "squared_attn", "norm": "reused_norm"}
"""The paper's stand-ins; the paper keeps every LayerNorm."""
FITTED = {"gelu": "quadratic", "softmax": "quadratic_attn", "norm": "reused_norm"}
"""Stand-ins whose parameters are fitted to the teacher."""
FREE = {
    "quadratic": "affine",
    "quadratic_attn": "static_attn",
    "squared_attn": "uniform_attn",
    "linear_norm": "reused_norm",
}
"""What costs less than a stand-in with a square: the third choice of a search with a cost budget."""

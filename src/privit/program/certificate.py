"""Why nothing can wrap unseen between two places that the guard watches: bounds from the weights.

The engine's products are right below 2^26 and squares therefore for factors below 2^13
(docs/security.md). From one watched place to the next the bounds below hold for every image, because a
product with a matrix stretches a vector by at most the matrix's norm. They are the server's own: it works
them out in the clear from its folded weights, and only whether they hold is told.

A token x that its LayerNorm's guard let pass has |x|^2 <= high, and h = x * inverse has a known norm H. With
the bias as one more row, W h + b is a matrix times (h / H, 1), whose norm is at most sqrt(2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from privit.operators import BY_NAME, TWO_QUAD_SHIFT, Operator
from privit.plan import OWN_FACTOR
from privit.program.forms import GELU_SCALE, sum_range
from privit.program.graph import Graph, MlpGroup
from privit.program.guard import ENGINE_EXP_DEPTH, ENGINE_RECIPROCAL, bound_of, root_bounds
from privit.program.heads import public_factors, secret_factors
from privit.program.ranges import FRACTION_BITS, GUARD, RING_BITS

PRODUCT_LIMIT = 2.0 ** (RING_BITS - 2 * FRACTION_BITS - 2)
SQUARE_LIMIT = PRODUCT_LIMIT**0.5
ROUNDING = 1.05
"""How much larger than in exact arithmetic values get by short forms and truncation, generously."""
AUGMENTED = 2.0**0.5
"""The norm of (h / H, 1)."""

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Reach:
    """How far the values of a place can get by the bounds, and how far they may."""

    place: str
    reach: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the place is shown to be right; a NaN is not."""
        return bool(self.reach <= self.limit)

    def __str__(self) -> str:
        return f"{self.place} may reach {self.reach:.3g}, and is right up to {self.limit:.3g}"


@dataclass
class Certificate:
    """Bounds of everything between watched places, collected along the program."""

    graph: Graph
    values: Values
    reaches: list[Reach] = field(default_factory=list)
    factor: float = 1.0
    """The largest factor that the last LayerNorm with one of its own can have passed on."""

    def note(self, place: str, reach: float | np.ndarray, limit: float = PRODUCT_LIMIT) -> None:
        """Adds one place."""
        self.reaches.append(Reach(place, ROUNDING * float(np.max(reach)), limit))

    @property
    def open_places(self) -> list[Reach]:
        """Where the bounds do not show that nothing wraps."""
        return [reach for reach in self.reaches if not reach.holds]


def certify(graph: Graph, values: Values, largest_pixel: float) -> Certificate:
    """Bounds for every image whose preprocessed pixels are at most `largest_pixel` in size."""
    made = Certificate(graph, {name: np.asarray(v, np.float64) for name, v in values.items()})
    given, spec = made.values, graph.spec
    stream = largest_pixel * np.abs(given["embed.weight"]).sum(axis=0)
    stream = stream + np.abs(given["embed.offset"]).max(axis=0)
    for layer in range(spec.depth):
        at = f"blocks.{layer}."
        if spec.blocks[layer].pool:
            stream = _pooled(made, layer, stream)
        stream = _attention(made, layer, *_read(made, at + "norm1", stream))
        stream = _mlp(made, layer, *_read(made, at + "norm2", stream))
    tokens = graph.pooled_tokens if spec.pooling == "mean" else 1
    if graph.sums_before_norm:
        made.factor *= tokens
    size, _ = _read(made, "norm", stream * (tokens if graph.sums_before_norm else 1))
    pooled = size * (1 if graph.sums_before_norm else tokens)
    made.note("logits", pooled * np.linalg.norm(given["head.weight"], axis=0) + np.abs(given["head.bias"]))
    return made


def _pooled(made: Certificate, layer: int, stream: np.ndarray) -> np.ndarray:
    """The stream behind a pool, which mixes tokens and the factors that they bring along."""
    grown = max(1.0, float(np.abs(made.values[f"blocks.{layer}.pool.weight"]).sum(axis=1).max()))
    made.factor *= grown
    made.note(f"blocks.{layer}.pool", stream * grown)
    return stream * grown


def _read(made: Certificate, norm: str, stream: np.ndarray) -> tuple[float, np.ndarray]:
    """The norm of a token behind a LayerNorm, and the stream (width,) as its guard leaves it.

    A LayerNorm without a sum of squares of its own keeps the stream as it came, and gives the norm of the
    stream times the largest factor that the LayerNorm whose factor it takes can have.
    """
    found, sizes, left, factors = made.graph.norm(norm), [], [], []
    for entry in found.groups:
        if entry.family in OWN_FACTOR:
            size, after = _own(made, norm, entry, stream)
        else:
            size = float(np.linalg.norm(stream)) * (made.factor if entry.family == "reused" else 1.0)
            made.note(f"{norm} ({entry.name})", size)
            after = stream
            factors.append(made.factor)
        sizes.append(size)
        left.append(after)
    # Where the class token and the patches differ, the one is brought to the scale of the other.
    ratio = max(1.0, float(np.abs(made.values.get(f"{norm}.ratio", 1.0)).max()))
    made.factor = max([made.factor, *factors]) if factors else made.factor
    return ratio * max(sizes), np.max(left, axis=0)


def _own(made: Certificate, norm: str, entry: Operator, stream: np.ndarray) -> tuple[float, np.ndarray]:
    made.note(f"{norm} (squared)", stream, SQUARE_LIMIT)
    low, high = root_bounds(made.graph, norm)
    after = np.minimum(stream, high**0.5)
    if entry.family == "linear":
        level = max(float(np.abs(v).max()) for name, v in made.values.items() if _is_level(name, norm))
        made.factor = high * made.graph.variance_scale(norm) + level
        size = float(np.linalg.norm(after)) * made.factor
        made.note(f"{norm} (linear)", size)
        return size, after
    root = made.graph.root(norm)
    scale = root.factor if root is not None else 1.0
    made.factor = scale / low**0.5
    # Single values meet the factor alone in the last block.
    made.note(f"{norm} (factor)", made.factor)
    return ROUNDING * scale, after


def _is_level(name: str, norm: str) -> bool:
    return name.startswith(norm + ".") and name.endswith("level")


def _norm(matrix: np.ndarray) -> float:
    return float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0


def _attention(made: Certificate, layer: int, size: float, stream: np.ndarray) -> np.ndarray:
    graph, at = made.graph, f"blocks.{layer}."
    if graph.mixes_tokens(layer):
        return stream + _mixed_tokens(made, at, size, len(graph.heads(layer)))
    heads, tokens = graph.heads(layer), graph.spec.tokens_in(layer)
    queries, keys, contents = _projected(made, layer, size)
    attended = []
    for index, head in enumerate(heads):
        content = AUGMENTED * _norm(contents[index])
        score = key = 0.0
        if index in queries:
            key = AUGMENTED * _norm(keys[index])
            score = AUGMENTED**2 * _norm(queries[index] @ keys[index].T)
            made.note(f"{at}heads.{index} (q, k)", max(AUGMENTED * _norm(queries[index]), key))
            made.note(f"{at}heads.{index} (k x v)", tokens * key * content)
        weights = [_row_weight(made, layer, index, name, score) for name in head.names]
        attended.append(max(weights) * content)
        made.note(f"{at}heads.{index} (attended)", attended[-1])
        # Before a row is divided by its sum, it is as large as the sum may be.
        made.note(f"{at}heads.{index} (undivided)", _largest_sum(graph, layer) * content)
    out = made.values[at + "out.weight"]
    parts = np.split(out, len(heads), axis=0)
    update = sum(a * np.linalg.norm(part, axis=0) for a, part in zip(attended, parts, strict=True))
    update = update + np.abs(made.values[at + "out.bias"])
    made.note(f"{at}attention (update)", update)
    return stream + update


def _mixed_tokens(made: Certificate, at: str, size: float, heads: int) -> np.ndarray:
    """What attention adds where static weights mix the tokens before any product."""
    longest = np.abs(made.values[at + "mix.weight"]).sum(axis=1).reshape(heads, -1).max(axis=1) * size
    made.note(f"{at}attention (mixed)", longest)
    parts = np.split(made.values[at + "out.weight"], heads)
    update = sum(a * np.linalg.norm(part, axis=0) for a, part in zip(longest, parts, strict=True))
    update = update + np.abs(made.values[at + "out.bias"]).max(axis=0)
    made.note(f"{at}attention (update)", update)
    return np.asarray(update)


def _projected(
    made: Certificate, layer: int, size: float
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray], list[np.ndarray]]:
    """q, k and v of each head as matrices (width + 1, head width) that meet (h / H, 1)."""
    graph, at, given = made.graph, f"blocks.{layer}.", made.values
    heads = graph.heads(layer)
    reading = [i for i, head in enumerate(heads) if head.reads]
    if graph.reads_one_row(layer):
        v = _scaled_rows(given[at + "v.weight"], size)
        if reading:
            q = _augmented(given[at + "q.weight"], given[at + "q.bias"], size)
            k = _scaled_rows(given[at + "k.weight"].T, size)
    else:
        both = _augmented(given[at + "qkv.weight"], given[at + "qkv.bias"], size)
        inner = len(reading) * graph.spec.width // len(heads)
        if at + "q.weight" in given:
            q = _augmented(given[at + "q.weight"], given[at + "q.bias"], size)
        elif reading:
            q, both = both[:, :inner], both[:, inner:]
        k, v = both[:, :inner], both[:, inner:]
        if graph.sums_values(layer):
            v = v * graph.spec.tokens_in(layer)
    cut = lambda matrix: dict(zip(reading, np.split(matrix, len(reading), axis=1), strict=True))  # noqa: E731
    queries, keys = (cut(q), cut(k)) if reading else ({}, {})
    return queries, keys, np.split(v, len(heads), axis=1)


def _augmented(weight: np.ndarray, bias: np.ndarray, size: float) -> np.ndarray:
    return np.concatenate([size * weight, bias[None]], axis=0)


def _scaled_rows(matrix: np.ndarray, size: float) -> np.ndarray:
    """A matrix whose last row is its bias already."""
    return np.concatenate([size * matrix[:-1], matrix[-1:]], axis=0)


def _largest_sum(graph: Graph, layer: int) -> float:
    scores = graph.scores(layer)
    short = sum_range(graph.spec.tokens_in(layer), scores)[2] if scores is not None else 0.0
    return max(short, ENGINE_RECIPROCAL[1], graph.spec.tokens_in(layer))


def _row_weight(made: Certificate, layer: int, index: int, name: str, score: float) -> float:
    """The sum of the sizes of a row's attention weights, for rows of one operator."""
    graph, place = made.graph, f"blocks.{layer}.heads.{index}.{name}"
    tokens, entry = graph.spec.tokens_in(layer), BY_NAME[name]
    given = lambda value: float(np.abs(made.values.get(f"blocks.{layer}.heads.{index}.{value}", 0.0)).max())  # noqa: E731
    if entry.family == "constant":
        return tokens * (given("constant") if entry.fitted else entry.coefficients[0] / tokens)
    if entry.family == "static":
        return float(np.abs(made.values[f"blocks.{layer}.heads.{index}.static"]).sum(axis=1).max())
    score *= _factor(made, layer, index, name)
    made.note(f"{place} (scores)", score * tokens)
    if entry.family == "linear":
        return tokens * (score + given("linear_level"))
    if entry.family == "square":
        made.note(f"{place} (squared)", score + given("shift"), SQUARE_LIMIT)
        watched = bound_of(graph.ranges, f"{GUARD}blocks.{layer}.squares")
        return min(watched, tokens * (score + given("shift")) ** 2) + tokens * given("level")
    if name != "softmax":
        made.note(f"{place} (squared)", score + TWO_QUAD_SHIFT, SQUARE_LIMIT)
        return ROUNDING
    if graph.scores(layer) is None and f"{GUARD}blocks.{layer}.depth" not in graph.ranges:
        made.note(f"{place} (depth)", 2 * score, ENGINE_EXP_DEPTH)
    return ROUNDING


def _factor(made: Certificate, layer: int, index: int, name: str) -> float:
    """By what the rows of an operator are multiplied because their head folds another's scale."""
    heads = made.graph.heads(layer)
    public = public_factors(heads, lambda other: made.graph.public_scale(layer, other))
    found = abs(public.get((index, name), 1.0))
    for secret in secret_factors(heads).get((index, name), ()):
        found *= float(np.abs(made.values[f"blocks.{layer}.heads.{index}.{secret}"]).max())
    return found


def _mlp(made: Certificate, layer: int, size: float, stream: np.ndarray) -> np.ndarray:
    updates = [_group(made, layer, group, size) for group in made.graph.mlp_groups(layer)]
    update = np.max(updates, axis=0)
    made.note(f"blocks.{layer}.mlp (update)", update)
    return stream + update


def _group(made: Certificate, layer: int, group: MlpGroup, size: float) -> np.ndarray:
    at, given, graph = f"blocks.{layer}.mlp.{group.key}.", made.values, made.graph
    if group.path == "merged":
        return AUGMENTED * np.linalg.norm(_augmented(given[at + "weight"], given[at + "bias"], size), axis=0)
    up = _augmented(given[at + "up.weight"], given[at + "up.bias"], size)
    hidden = AUGMENTED * np.linalg.norm(up, axis=0)
    down, bias = given[at + "down.weight"], np.abs(given[at + "down.bias"])
    if group.path == "square":
        made.note(f"{at[:-1]} (squared)", hidden, SQUARE_LIMIT)
        watched = bound_of(graph.ranges, f"{GUARD}blocks.{layer}.squared")
        return min(watched, (AUGMENTED * _norm(up)) ** 2) * np.abs(down).max(axis=0) + bias
    if graph.by_element(layer):
        made.note(f"{at[:-1]} (squared)", hidden, SQUARE_LIMIT)
        return _elements(made, layer, group.names, hidden) @ np.abs(down) + bias
    # No pointwise operator is further from zero than its input, up to the error of the short GELU.
    made.note(f"{at[:-1]} (hidden)", hidden / GELU_SCALE)
    length = AUGMENTED * _norm(up) + GELU_SCALE
    return ROUNDING * length * np.linalg.norm(down, axis=0) + bias


def _elements(made: Certificate, layer: int, names: Sequence[str], hidden: np.ndarray) -> np.ndarray:
    """The largest size of each hidden value behind any of the operators."""
    found = [hidden + 1.0]
    for entry in (BY_NAME[name] for name in names):
        if entry.family == "pointwise":
            continue
        total = np.zeros_like(hidden)
        for power, name in enumerate(reversed(list(entry.parameters))):
            total += np.abs(made.values[f"blocks.{layer}.gelu.{entry.name}.{name}"]) * hidden**power
        for power, value in enumerate(reversed(entry.coefficients)):
            total += abs(value) * hidden**power
        found.append(total)
    return np.max(found, axis=0)

"""The guard: which values of a program are watched, in what bounds, and what that makes the parties do.

A program is right only where its values stay in the ranges that it was made for. Each value below is there in
shares already, or is a sum of such; at the end all of them are compared with public bounds at once,
and one bit, `inside`, is opened to the client.

    guard.{norm}                 a LayerNorm's sum of squares, if it computes one: what its rsqrt takes
    guard.blocks.{i}.squares     a row's sum of squared scores, over all squared rows
    guard.blocks.{i}.centred     scores less their row mean, of rows with a short exp
    guard.blocks.{i}.sums        a row's sum of short exponentials: what its short reciprocal takes
    guard.blocks.{i}.depth       how far a score lies below its row's largest: what the engine's exp takes
    guard.blocks.{i}.divisors    what the engine's reciprocal takes, of rows that divide by another sum
    guard.blocks.{i}.squared     a token's sum of squared hidden values

Between two watched places nothing can wrap, which `certificate.py` shows from the weights. So of
all values that leave their bounds the first is still computed right, and its comparison sees it
(docs/security.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from privit.operators import BY_NAME
from privit.plan import OWN_FACTOR
from privit.program.forms import score_exp, sum_range
from privit.program.graph import Graph
from privit.program.heads import rows_of
from privit.program.operation import Recorder
from privit.program.ranges import GUARD, variance_keys, variance_range

ENGINE_ROOT = (2.0**-10, 0.95 * 2.0**17)
"""What the engine's rsqrt takes: measured, it is off by 4e-3 at 1e-4 and gives 0 from 2^17 on."""
ENGINE_EXP_DEPTH = 500.0
"""The engine's exp is (1 + x / 256)^256: nonsense below -512, measured."""
ENGINE_RECIPROCAL = (2.0**-10, 2.0**12)
"""What the engine's reciprocal takes: measured, it is off by 1 % at 2^13 and by 31 % at 1e-5."""
ENGINE_MARGINS = (16.0, 64.0)
"""How far below and above the measured variances a LayerNorm may get that runs the engine's rsqrt."""
LOOSE = 2.0**12
"""The bound of a sum of squares of which the artifact says nothing."""


@dataclass(frozen=True)
class Watch:
    """Values of one name that must lie in [low, high]; a bound that cannot be broken is None."""

    name: str
    values: int
    low: float | None = None
    high: float | None = None

    @property
    def comparisons(self) -> int:
        """How many comparisons that makes."""
        return self.values * ((self.low is not None) + (self.high is not None))


def watches(graph: Graph) -> Iterator[tuple[str, list[Watch]]]:
    """Each segment of the program and what is watched in it, in the order of the program."""
    spec = graph.spec
    for layer in range(spec.depth):
        at = f"blocks.{layer}."
        yield (
            f"layer {layer}",
            [
                _norm(graph, at + "norm1", spec.tokens_in(layer)),
                *_attention(graph, layer),
                _norm(graph, at + "norm2", graph.query_rows(layer)),
                *_mlp(graph, layer),
            ],
        )
    each = spec.pooling == "mean" and not graph.sums_before_norm
    yield "head", [_norm(graph, "norm", graph.pooled_tokens if each else 1)]


def all_watches(graph: Graph) -> list[Watch]:
    """What is watched in the whole program."""
    return [watch for _, found in watches(graph) for watch in found if watch.values]


def record_guard(graph: Graph, note: Recorder) -> None:
    """The operations of the guard: one comparison of everything, a count, and one comparison of the count."""
    comparisons = sum(watch.comparisons for watch in all_watches(graph))
    if not comparisons:
        return
    comparisons += odd_count(comparisons)
    note("compare_public", comparisons)
    note("count_bits", comparisons)
    note("compare_public", 1)
    note("number_bit", 1)


def odd_count(comparisons: int) -> bool:
    """Whether one comparison is made twice: the engine adds bits by halves, and a last one takes a round."""
    return comparisons % 2 == 1


def root_bounds(graph: Graph, norm: str) -> tuple[float, float]:
    """What the sum of squares of a LayerNorm, with its epsilon, must lie in."""
    width, eps = graph.spec.width, graph.norm_eps(norm)
    if graph.root(norm) is not None:
        found = variance_range(graph.ranges, norm)
        assert found is not None
        return width * (found.low + eps), width * (found.high + eps)
    low, high = (graph.ranges.get(key) for key in variance_keys(norm))
    least, most = ENGINE_ROOT
    if not low or not high:
        return least, most
    return (
        max(least, width * (low / ENGINE_MARGINS[0] + eps)),
        min(most, width * (high * ENGINE_MARGINS[1] + eps)),
    )


def bound_of(ranges: Mapping[str, float], name: str) -> float:
    """The bound of a sum of squares: the artifact's, or a loose one."""
    return float(ranges.get(name, LOOSE))


def _norm(graph: Graph, norm: str, rows: int) -> Watch:
    found = graph.norm(norm)
    sizes = (1, rows - 1) if found.split else (rows,)
    own = sum(size for entry, size in zip(found.groups, sizes, strict=True) if entry.family in OWN_FACTOR)
    return Watch(f"{GUARD}{norm}", own, *root_bounds(graph, norm))


def _attention(graph: Graph, layer: int) -> list[Watch]:
    at, heads, tokens = f"{GUARD}blocks.{layer}.", graph.heads(layer), graph.spec.tokens_in(layer)
    scores = graph.scores(layer)
    exact = rows_of(heads, lambda entry: entry.name == "softmax")
    squares = rows_of(heads, lambda entry: entry.family == "square")
    found = [Watch(at + "squares", squares, high=bound_of(graph.ranges, at + "squares"))]
    if scores is not None:
        scale, (_, _, most) = score_exp(tokens, scores).scale, sum_range(tokens, scores)
        found.append(Watch(at + "centred", exact * tokens, scale * scores.low, scale * scores.high))
        found.append(Watch(at + "sums", exact, high=most))
    elif at + "depth" in graph.ranges:
        found.append(Watch(at + "depth", exact * tokens, high=ENGINE_EXP_DEPTH))
    return [*found, Watch(at + "divisors", divided_rows(graph, layer), *ENGINE_RECIPROCAL)]


def divided_rows(graph: Graph, layer: int) -> int:
    """Rows that are divided by a sum whose size no operator bounds; an engine's softmax is at least 1."""
    return rows_of(graph.heads(layer), lambda entry: divides(entry.name))


def divides(name: str) -> bool:
    """Whether an operator divides by a sum that may be of any size."""
    return BY_NAME[name].family == "normalised" and name != "softmax"


def _mlp(graph: Graph, layer: int) -> list[Watch]:
    name = f"{GUARD}blocks.{layer}.squared"
    tokens = sum(group.all_tokens.size for group in graph.mlp_groups(layer) if group.path == "square")
    return [Watch(name, tokens, high=bound_of(graph.ranges, name))]

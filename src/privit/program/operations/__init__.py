"""What a compiled program computes: its costly operations with their sizes, from its graph alone.

This follows `serve/model/forward.py`, `attention.py` and `mlp.py` step by step without the engine, so
that a cost is known at once and on any machine; tests compare the list with the compiled program.
What each party does alone (sums, slices, additions) is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from privit.operators import Operator
from privit.plan import OWN_FACTOR
from privit.program.choices import Rewrites
from privit.program.graph import Graph
from privit.program.guard import record_guard
from privit.program.operation import Operation, Recorder
from privit.program.operations.attention import attention
from privit.program.operations.mlp import mlp


def operations(graph: Graph) -> Iterator[tuple[str, list[Operation]]]:
    """Each segment of the program (embedding, layer 0, ..., head, guard) and its operations in order.

    The graph has every rewrite: one without is compared by running it, and never priced.
    """
    assert graph.rewrites == Rewrites(), graph.rewrites
    spec = graph.spec
    note = Recorder(graph.batch)
    note("matmul_input", spec.patches, spec.patch_values, spec.width)
    yield "embedding", note.operations
    for layer in range(spec.depth):
        note = Recorder(graph.batch)
        _before_attention(graph, layer, note)
        attention(graph, layer, note)
        _norm(graph, f"blocks.{layer}.norm2", graph.query_rows(layer), note)
        mlp(graph, layer, note)
        yield f"layer {layer}", note.operations
    note = Recorder(graph.batch)
    _final_norm(graph, note)
    note("matmul_weight", 1, spec.width, spec.classes)
    yield "head", note.operations
    if graph.guard:
        note = Recorder(graph.batch)
        record_guard(graph, note)
        yield "guard", note.operations


def norms(graph: Graph, layer: int, note: Recorder) -> None:
    """What follows from a layer's norm sites: its pool, its LayerNorms, and the final one after the last."""
    _before_attention(graph, layer, note)
    _norm(graph, f"blocks.{layer}.norm2", graph.query_rows(layer), note)
    if layer + 1 == graph.spec.depth:
        _final_norm(graph, note)


def _before_attention(graph: Graph, layer: int, note: Recorder) -> None:
    """The pool, if there is one, which also mixes factors that are read later, and the first LayerNorm."""
    spec = graph.spec
    if spec.blocks[layer].pool:
        # The secret matrix stands on the left: images are more columns of what it mixes.
        columns = graph.batch.images * (spec.width + graph.carries(layer, only_patches=True))
        note.product("matmul_weight", spec.blocks[layer].pool, spec.patches_before(layer), columns)
    normalise = _factor if graph.reads_one_row(layer) else _norm
    normalise(graph, f"blocks.{layer}.norm1", spec.tokens_in(layer), note)


def _final_norm(graph: Graph, note: Recorder) -> None:
    each = graph.spec.pooling == "mean" and not graph.sums_before_norm
    _norm(graph, "norm", graph.pooled_tokens if each else 1, note)


def _norm(graph: Graph, name: str, rows: int, note: Recorder) -> None:
    _factor(graph, name, rows, note)
    norm = graph.norm(name)
    note("multiply_weight" if norm.constant else "multiply", rows * graph.spec.width if norm.scales else 0)


def _factor(graph: Graph, name: str, rows: int, note: Recorder) -> None:
    norm = graph.norm(name)
    sizes = (1, rows - 1) if norm.split else (rows,)
    # Squares and linear factors of the class token and of patches are computed together where both have them.
    note("square", rows * graph.spec.width if norm.all_own else 0)
    note("multiply_public", rows if norm.all_linear and graph.variance_scale(name) != 1 else 0)
    for place, (entry, size) in enumerate(zip(norm.groups, sizes, strict=True)):
        if entry.family in OWN_FACTOR:
            # Before the first block the class token is the same for every image, which the compiler sees.
            square = note.once if norm.split and name == "blocks.0.norm1" and place == 0 else note
            square("square", 0 if norm.all_own else size * graph.spec.width)
            _own_factor(graph, name, entry, 0 if norm.all_linear else size, note)
    # The class token's row is brought to the scale that is folded for the patches.
    note("multiply_weight", int(norm.split and norm.groups[0].family != "constant"))


def _own_factor(graph: Graph, name: str, entry: Operator, rows: int, note: Recorder) -> None:
    root = graph.root(name)
    if entry.family == "linear":
        # The compiler leaves out a product with one.
        note("multiply_public", rows if graph.variance_scale(name) != 1 else 0)
    elif root is None:
        note("rsqrt", rows)
    else:
        root.record(note, rows)

"""The operations of the untouched model as commonly written; as in `serve/model/as_written.py`."""

from __future__ import annotations

from collections.abc import Iterator

from privit.program.operation import Operation, Recorder
from privit.spec import Spec


def written_operations(spec: Spec) -> Iterator[tuple[str, list[Operation]]]:
    """Each segment of the dense graph without rewrites, and its operations in order."""
    note = Recorder()
    note("matmul_input", spec.patches, spec.patch_values, spec.width)
    yield "embedding", note.operations
    for layer in range(spec.depth):
        note = Recorder()
        _layer(spec, layer, note)
        yield f"layer {layer}", note.operations
    note = Recorder()
    _head(spec, note)
    yield "head", note.operations


def _norm(rows: int, width: int, note: Recorder) -> None:
    """Variance as the mean square less the squared mean, kept from below zero."""
    note("multiply_public", rows)
    note("square", rows * width)
    note("multiply_public", rows)
    note("square", rows)
    note("compare_public", rows)
    note("multiply_bit", rows)
    note("rsqrt", rows)
    note("multiply_weight", rows * width)
    note("multiply", rows * width)


def _layer(spec: Spec, layer: int, note: Recorder) -> None:
    block, tokens, width = spec.blocks[layer], spec.tokens, spec.width
    inner, scores = width // block.heads, block.heads * spec.tokens**2
    _norm(tokens, width, note)
    for _ in range(3):
        note("matmul_weight", tokens, width, width)
    note("multiply_public", tokens * width)
    for _ in range(block.heads):
        note("matmul", tokens, inner, tokens)
    note("max", block.heads * tokens, tokens)
    note("compare_public", block.heads * tokens)
    note("select", block.heads * tokens)
    note("exp", scores)
    note("divide", scores)
    for _ in range(block.heads):
        note("matmul", inner, tokens, tokens)
    note("matmul_weight", tokens, width, width)
    note("multiply_weight", tokens * width if block.layer_scale else 0)
    _norm(tokens, width, note)
    note("matmul_weight", tokens, width, block.mlp_width)
    _gelu(tokens * block.mlp_width, note)
    note("matmul_weight", tokens, block.mlp_width, width)
    note("multiply_weight", tokens * width if block.layer_scale else 0)


def _gelu(values: int, note: Recorder) -> None:
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    note("square", values)
    note("multiply", values)
    note("multiply_public", values)
    note("multiply_public", values)
    note("tanh", values)
    note("multiply_public", values)
    note("multiply", values)


def _head(spec: Spec, note: Recorder) -> None:
    one = spec.pooling == "cls" or spec.final_norm == "after_pool"
    rows = 1 if one else spec.tokens - int(spec.class_token)
    if spec.pooling == "mean" and one:
        note("multiply_public", spec.width)
    _norm(rows, spec.width, note)
    # Of a single row the compiler takes the mean twice.
    note("multiply_public", 1 if one else spec.width)
    note("matmul_weight", 1, spec.width, spec.classes)

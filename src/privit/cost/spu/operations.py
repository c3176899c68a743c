"""What a compiled program computes: its costly operations with their sizes, from spec and plan alone.

This follows `serve/model/forward.py`, `attention.py` and `mlp.py` step by step without the engine, so
that a cost is known at once and on any machine; tests compare the list with the compiled program.
What each party does alone (sums, slices, additions) is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from privit.cost.spu import short_forms
from privit.cost.spu.attention_operations import attention
from privit.cost.spu.mlp_operations import mlp
from privit.cost.spu.subject import REWRITES, Operation, Recorder, Subject
from privit.plan import Plan
from privit.spec import Spec


def operations(
    spec: Spec,
    plan: Plan,
    rewrites: frozenset[str] = REWRITES,
    ranges: Mapping[str, float] | None = None,
) -> Iterator[tuple[str, list[Operation]]]:
    """Each segment of the program (embedding, layer 0, ..., head) and its operations in order."""
    subject = Subject(spec, plan, rewrites, ranges or {})
    note = Recorder()
    note("matmul_input", spec.patches, spec.patch_values, spec.width)
    yield "embedding", note.operations
    for layer in range(spec.depth):
        note = Recorder()
        _layer(subject, layer, note)
        yield f"layer {layer}", note.operations
    note = Recorder()
    _head(subject, note)
    yield "head", note.operations


def _layer(subject: Subject, layer: int, note: Recorder) -> None:
    width, rows, tokens = subject.spec.width, subject.rows(layer), subject.spec.tokens
    scaled = subject.spec.blocks[layer].layer_scale and "fold" not in subject.rewrites
    if subject.reads_one_row(layer):
        _inverse_deviation(subject, f"blocks.{layer}.norm1", tokens, note)
    else:
        norm(subject, f"blocks.{layer}.norm1", tokens, note)
    attention(subject, layer, note)
    note("multiply_weight", rows * width if scaled else 0)
    norm(subject, f"blocks.{layer}.norm2", rows, note)
    mlp(subject, layer, note)
    note("multiply_weight", rows * width if scaled else 0)


def norm(subject: Subject, name: str, rows: int, note: Recorder) -> None:
    """LayerNorm of so many tokens."""
    width = subject.spec.width
    if "fold" in subject.rewrites:
        _inverse_deviation(subject, name, rows, note)
        note("multiply", rows * width)
        return
    note("multiply_public", rows)
    note("square", rows * width)
    note("multiply_public", rows)
    note("rsqrt", rows)
    note("multiply", rows * width)
    note("multiply_weight", rows * width)


def _inverse_deviation(subject: Subject, name: str, rows: int, note: Recorder) -> None:
    width, eps = subject.spec.width, _eps(subject, name)
    note("square", rows * width)
    steps = short_forms.root_steps(subject.ranges, name, width, eps) if _short(subject) else None
    if steps is None:
        note("rsqrt", rows)
        return
    note("multiply_public", rows)
    note("multiply", rows)
    for step in range(steps):
        note("multiply", rows)
        note("multiply", rows if step + 1 == steps else 2 * rows)


def _eps(subject: Subject, name: str) -> float:
    """The last LayerNorm may see a sum over tokens in place of their mean."""
    spec = subject.spec
    sums = name == "norm" and spec.pooling == "mean" and spec.final_norm == "after_pool"
    return spec.norm_eps * ((spec.tokens - int(spec.class_token)) ** 2 if sums else 1)


def _short(subject: Subject) -> bool:
    return {"ranges", "fold"} <= subject.rewrites


def _head(subject: Subject, note: Recorder) -> None:
    spec = subject.spec
    after_pool = spec.final_norm == "after_pool"
    mean = spec.pooling == "mean"
    norm(subject, "norm", spec.tokens - int(spec.class_token) if mean and not after_pool else 1, note)
    if mean and not after_pool and "fold" not in subject.rewrites:
        note("multiply_public", spec.width)
    note("matmul_weight", 1, spec.width, spec.classes)

"""The operations of the MLP under a plan; the same steps as `serve/model/mlp.py`."""

from __future__ import annotations

from privit.cost.spu.decisions import merging_pays
from privit.cost.spu.subject import Recorder, Subject

SQUARED = ("quad", "quadratic")


def mlp(subject: Subject, layer: int, note: Recorder) -> None:
    """Every group of tokens of one layer's MLP."""
    counts, by_element = subject.gelu_counts(layer)
    width, hidden = subject.spec.width, subject.spec.blocks[layer].mlp_width
    if by_element:
        note("matmul_weight", subject.rows(layer), width, hidden)
        for name, values in counts.items():
            _element(name, values, note)
        note("matmul_weight", subject.rows(layer), hidden, width)
        return
    left = dict(counts)
    for name in SQUARED:
        tokens = left.pop(name, 0)
        note("matmul_weight", tokens, width, hidden)
        note("square", tokens * hidden)
        note("matmul_weight", tokens, hidden, width)
    note("matmul_weight", left.pop("affine", 0), width, width)
    if "identity" in left and _merges(subject, layer, left):
        note("matmul_weight", left.pop("identity"), width, width)
    tokens = sum(left.values())
    note("matmul_weight", tokens, width, hidden)
    for name, found in left.items():
        _token(name, found * hidden, "fold" in subject.rewrites, note)
    note("matmul_weight", tokens, hidden, width)


def _merges(subject: Subject, layer: int, where: dict[str, int]) -> bool:
    tokens, merged = sum(where.values()), where["identity"]
    pays = merging_pays(tokens, merged, subject.spec.width, subject.spec.blocks[layer].mlp_width)
    return {"merge_mlp", "fold"} <= subject.rewrites and pays


def _gelu(values: int, note: Recorder) -> None:
    note("compare_public", values)
    note("multiply_bit", values)
    note("compare_public", values)
    note("select", values)
    note("square", values)
    note("multiply", values)


def _token(name: str, values: int, folded: bool, note: Recorder) -> None:
    if name == "relu":
        note("compare_public", values)
        note("multiply_bit", values)
    elif name == "gelu":
        _scaled_gelu(values, folded, note)


def _scaled_gelu(values: int, folded: bool, note: Recorder) -> None:
    if not folded:
        note("multiply_public", values)
    _gelu(values, note)
    if not folded:
        note("multiply_public", values)


def _element(name: str, values: int, note: Recorder) -> None:
    if name in ("gelu", "relu"):
        _token(name, values, False, note)
    elif name == "quad":
        note("multiply_public", values)
        note("multiply", values)
    elif name in ("affine", "quadratic"):
        note("multiply_weight", values)
        note("multiply", values if name == "quadratic" else 0)

"""The operations of the MLP under a plan; the same steps as `serve/model/mlp.py`."""

from __future__ import annotations

import numpy as np

from privit.operators import BY_NAME, Operator
from privit.program import forms
from privit.program.graph import Graph
from privit.program.operation import Recorder


def mlp(graph: Graph, layer: int, note: Recorder) -> None:
    """Every group of tokens of one layer's MLP."""
    width, hidden = graph.spec.width, graph.block(layer).mlp_width
    for group in graph.mlp_groups(layer):
        tokens = group.all_tokens.size
        if group.path == "merged":
            note("matmul_weight", tokens, width, width)
            continue
        note("matmul_weight", tokens, width, hidden)
        if group.path == "square":
            note("square", tokens * hidden)
        elif graph.by_element(layer):
            _by_element(graph, layer, group.names, note)
        else:
            for name, rows in zip(group.names, group.tokens, strict=True):
                _on_scaled(BY_NAME[name], rows.size * hidden, note)
        note("matmul_weight", tokens, hidden, width)


def _on_scaled(entry: Operator, values: int, note: Recorder) -> None:
    """On hidden values that carry the scale of the short GELU."""
    if entry.name == "gelu":
        forms.record_scaled_gelu(note, values)
        return
    for name in entry.steps if entry.homogeneous else ("multiply_public", *entry.steps, "multiply_public"):
        note(name, values)


def _by_element(graph: Graph, layer: int, names: tuple[str, ...], note: Recorder) -> None:
    counts = np.bincount(graph.gelu_ids(layer).reshape(-1))
    for entry in (BY_NAME[name] for name in names):
        values = int(counts[entry.id])
        if entry.name == "gelu":
            forms.record_gelu(note, values)
            continue
        for name in entry.steps or _horner(entry):
            note(name, values)


def _horner(entry: Operator) -> tuple[str, ...]:
    if entry.homogeneous:
        return ()
    first = "multiply_weight" if entry.fitted else "multiply_public"
    return (first, "multiply") if entry.family == "square" else (first,)

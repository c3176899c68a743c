"""The operations of attention under a plan; the same steps as `serve/model/attention.py`.

Where the compiler joins two products with constants into one, the joined one is listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from privit.operators import BY_NAME, Operator
from privit.program.forms import score_exp, sum_reciprocal
from privit.program.graph import Graph
from privit.program.heads import Head, public_factors, rows_of, secret_factors
from privit.program.norms import Norm
from privit.program.operation import Recorder


def attention(graph: Graph, layer: int, note: Recorder) -> None:
    """Projection, scores, weights, values and the output projection of one layer."""
    spec, rows, heads = graph.spec, graph.query_rows(layer), graph.heads(layer)
    inner = spec.width // len(heads)
    if graph.reads_one_row(layer):
        _class_token(graph, layer, heads, inner, note)
        return
    if graph.mixes_tokens(layer):
        _static(graph, len(heads) * rows, spec.tokens_in(layer), spec.width, note)
        note("matmul_weight", rows, len(heads) * spec.width, spec.width)
        return
    _project(graph, layer, heads, inner, note)
    _by_scores(graph, layer, heads, inner, note)
    for head in heads:
        if head.form == "linear":
            wide = inner + BY_NAME[head.names[0]].fitted
            note.own("matmul", wide, spec.tokens_in(layer), inner)
            note.own("matmul", rows, wide, inner)
        for entry in (BY_NAME[name] for name in head.names):
            if entry.family == "constant":
                _constant(entry, head, inner, spec.tokens_in(layer), note)
            elif entry.family == "static":
                _static(graph, dict(head.groups)[entry.name].size, spec.tokens_in(layer), inner, note)
    note("matmul_weight", rows, spec.width, spec.width)


def _class_token(graph: Graph, layer: int, heads: Sequence[Head], inner: int, note: Recorder) -> None:
    """One query row a head, as in `serve/model/class_token.py`: weights meet one row, not all tokens."""
    width, tokens = graph.spec.width, graph.spec.tokens_in(layer)
    reading = sum(head.reads for head in heads)
    norm = graph.norm(f"blocks.{layer}.norm1")
    # What the server alone knows of both factors is listed as if it were shared.
    by_factor = "multiply_weight" if norm.constant else "multiply"
    if reading:
        _query(graph, layer, norm, reading * inner, note)
        note("matmul_weight", reading, reading * inner, width + 1)
        note.own("matmul", reading, width, tokens)
        note(by_factor, reading * tokens if norm.scales else 0)
        _weights(graph, layer, heads, note)
        note(by_factor, len(heads) * tokens if norm.scales else 0)
        note.own("matmul", len(heads), tokens, width)
    elif graph.sums_values(layer):
        _constant_heads(norm, heads, tokens, width, note)
    else:
        note("multiply" if norm.constant else "multiply_weight", len(heads) * tokens if norm.scales else 0)
        shared = norm.scales and not norm.constant
        note.own("matmul" if shared else "matmul_weight", len(heads), tokens, width)
    note("matmul_weight", len(heads), width + 1, width)
    _normalised(graph, layer, heads, inner, note)
    note("matmul_weight", 1, width, width)


def _query(graph: Graph, layer: int, norm: Norm, columns: int, note: Recorder) -> None:
    """The class token's row and its q; before the first block that token is the server's own."""
    width, first = graph.spec.width, norm.groups[0]
    own = layer == 0
    server = own and (not norm.scales or (norm.split and first.family == "constant"))
    if norm.scales and server:
        # The same for every image, which the compiler sees.
        note.once("multiply", width)
    elif norm.scales:
        weight = own or (norm.split and first.family == "constant")
        note("multiply_weight" if weight else "multiply", width)
    note("matmul" if server else "matmul_weight", 1, width, columns)


def _constant_heads(norm: Norm, heads: Sequence[Head], tokens: int, width: int, note: Recorder) -> None:
    """Every head weights all tokens alike."""
    fitted = any(BY_NAME[head.names[0]].fitted for head in heads)
    if fitted:
        # What every token is weighted with is the server's own, and so is its sum, which the compiler makes a
        # product with the number of tokens where it can see through the joined heads: up to two.
        note(
            "multiply" if norm.constant else "multiply_weight",
            len(heads) * (tokens if norm.scales else width),
        )
        if len(heads) == 1:
            note.once("scale_weight", 1)
        else:
            note("scale_weight", 2 if len(heads) == 2 else 0)
    else:
        note("scale_weight" if norm.constant else "multiply_public", tokens if norm.scales else width)
    if norm.scales:
        note.own("matmul_weight" if norm.constant else "matmul", len(heads), tokens, width)


def _constant(entry: Operator, head: Head, inner: int, tokens: int, note: Recorder) -> None:
    if entry.fitted:
        note("multiply_weight", inner)
    elif not head.quadratic:
        # One over the number of tokens, which may be one.
        note("multiply_public", inner if tokens > 1 else 0)
    else:
        # The compiler multiplies the constant with the secret sign first.
        note.once("scale_weight", 1)
    if head.quadratic:
        note("multiply_weight", inner)


def _static(graph: Graph, rows: int, tokens: int, width: int, note: Recorder) -> None:
    """Secret weights on the left: images are more columns of what they mix."""
    columns = graph.batch.images * width
    if tokens > 1:
        note.product("matmul_weight", rows, tokens, columns)
    else:
        # One token is scaled, which the compiler sees.
        note.once("multiply_weight", rows * columns)


def _project(graph: Graph, layer: int, heads: Sequence[Head], inner: int, note: Recorder) -> None:
    width = graph.spec.width
    reading = sum(head.reads for head in heads) * inner
    if graph.sums_values(layer):
        note.once("scale_weight", width if graph.spec.tokens_in(layer) > 1 else 0)
        note("matmul_weight", 1, width, width)
        return
    note("matmul_weight", graph.spec.tokens_in(layer), width, 2 * reading + width)


def _by_scores(graph: Graph, layer: int, heads: Sequence[Head], inner: int, note: Recorder) -> None:
    tokens = graph.spec.tokens_in(layer)
    sizes = [sum(rows.size for rows in head.scored.values()) for head in heads]
    _scaled(graph, layer, heads, inner, note)
    for rows in sizes:
        note.own("matmul", rows, inner, tokens)
    _weights(graph, layer, heads, note)
    for rows in sizes:
        note.own("matmul", rows, tokens, inner)
    _normalised(graph, layer, heads, inner, note)
    for head in heads:
        for name, index in head.scored.items():
            if head.quadratic not in (None, name) and BY_NAME[name].family != "normalised":
                note("multiply_weight", index.size * inner)


def _scaled(graph: Graph, layer: int, heads: Sequence[Head], inner: int, note: Recorder) -> None:
    public = public_factors(heads, lambda name: graph.public_scale(layer, name))
    secret = secret_factors(heads)
    size = {(i, name): rows.size for i, head in enumerate(heads) for name, rows in head.scored.items()}
    for key, factors in secret.items():
        for _ in factors[1:]:
            note("multiply_weight", size[key] * inner)
    if public.keys() == secret.keys() and len(set(public.values())) == 1:
        # The compiler multiplies the one public scale with the secret ones first.
        if len(public) > 1:
            note("scale_weight", sum(size[key] for key in public))
        else:
            note.once("scale_weight", 1)
    else:
        note("multiply_public", sum(size[key] for key in public) * inner)
    note("multiply_weight", sum(size[key] for key in secret) * inner)


def _weights(graph: Graph, layer: int, heads: Sequence[Head], note: Recorder) -> None:
    tokens, scores = graph.spec.tokens_in(layer), graph.scores(layer)
    note("square", rows_of(heads, lambda entry: entry.family == "square") * tokens)
    exact = rows_of(heads, lambda entry: entry.name == "softmax")
    if scores and exact:
        note("multiply_public", exact)
        score_exp(tokens, scores).record(note, exact * tokens)
    else:
        note("max", exact, tokens)
        note("exp", exact * tokens)
    for name in dict.fromkeys(name for head in heads for name in head.scored):
        entry = BY_NAME[name]
        if entry.family == "normalised":
            rows = rows_of(heads, lambda other, name=name: other.name == name)  # type: ignore[misc]
            for step in entry.steps:
                note(step, rows * tokens)


def _normalised(graph: Graph, layer: int, heads: Sequence[Head], inner: int, note: Recorder) -> None:
    scores = graph.scores(layer)
    total = rows_of(heads, lambda entry: entry.family == "normalised")
    short = rows_of(heads, lambda entry: entry.name == "softmax") if scores else 0
    if scores and short:
        sum_reciprocal(graph.spec.tokens_in(layer), scores).record(note, short)
    note("reciprocal", total - short)
    signed = [head for head in heads if head.quadratic]
    note("multiply_weight", rows_of(signed, lambda entry: entry.family == "normalised"))
    note("multiply", total * inner)

"""The operations of attention under a plan; the same steps as `serve/model/attention.py`."""

from __future__ import annotations

from dataclasses import dataclass

from privit.cost.spu import short_forms
from privit.cost.spu.decisions import linear_pays
from privit.cost.spu.subject import CONSTANT, LINEAR, NORMALISED, SQUARE, Recorder, Subject


@dataclass(frozen=True)
class HeadRows:
    """One head: how many rows run each operator, and whose scale its q weights carry."""

    rows: dict[str, int]
    form: str
    folded: str | None

    @property
    def scored(self) -> dict[str, int]:
        """The rows whose scores exist."""
        return {n: r for n, r in self.rows.items() if n not in CONSTANT} if self.form == "scores" else {}

    @property
    def signed(self) -> bool:
        """Whether the values carry the sign of a fitted quadratic."""
        return "quadratic_attn" in self.rows


def _head(subject: Subject, layer: int, rows: dict[str, int]) -> HeadRows:
    names, rewrites = tuple(rows), subject.rewrites
    if set(names) <= set(CONSTANT):
        return HeadRows(rows, "constant", None)
    if len(names) == 1 and names[0] in LINEAR:
        return HeadRows(rows, "linear" if _skips_scores(subject, layer) else "scores", names[0])
    if "fold" not in rewrites:
        return HeadRows(rows, "scores", None)
    if "quadratic_attn" in names:
        return HeadRows(rows, "scores", "quadratic_attn")
    foldable = [name for name in names if name in (*NORMALISED, "squared_attn", "scale_attn")]
    return HeadRows(rows, "scores", max(foldable, key=lambda name: rows[name], default=None))


def _skips_scores(subject: Subject, layer: int) -> bool:
    head_width = subject.spec.width // subject.spec.blocks[layer].heads
    pays = linear_pays(subject.rows(layer), subject.spec.tokens, head_width)
    return "linear_attention" in subject.rewrites and pays and not subject.reads_one_row(layer)


def attention(subject: Subject, layer: int, note: Recorder) -> None:
    """Projection, scores, weights, values and the output projection of one layer."""
    spec, rows = subject.spec, subject.rows(layer)
    heads = [_head(subject, layer, found) for found in subject.head_rows(layer)]
    inner = spec.width // len(heads)
    if subject.reads_one_row(layer):
        _class_token(subject, layer, heads, inner, note)
        return
    _project(subject, layer, heads, note)
    _by_scores(subject, layer, heads, inner, note)
    for head in heads:
        if head.form == "linear":
            wide = inner + ("linear_attn" in head.rows)
            note("matmul", wide, spec.tokens, inner)
            note("matmul", rows, wide, inner)
        for name in head.rows:
            if name in CONSTANT:
                _constant(name, head.signed, inner, note)
    note("matmul_weight", rows, spec.width, spec.width)


def _class_token(subject: Subject, layer: int, heads: list[HeadRows], inner: int, note: Recorder) -> None:
    """One query row a head, as in `serve/model/class_token.py`: weights meet one row, not all tokens."""
    width, tokens = subject.spec.width, subject.spec.tokens
    scoring = [head for head in heads if head.form != "constant"]
    reading = len(scoring)
    if reading:
        note("multiply", width)
        note("matmul_weight", 1, width, reading * inner)
        note("matmul_weight", reading, reading * inner, width + 1)
        note("matmul", reading, width, tokens)
        note("multiply", reading * tokens)
    found = _range(subject, layer)
    _weights(subject, scoring, found, note)
    note("multiply", len(heads) * tokens)
    note("matmul", len(heads), tokens, width)
    note("matmul_weight", len(heads), width + 1, width)
    if "late_reciprocal" in subject.rewrites:
        _normalised(scoring, inner, found, note)
    note("matmul_weight", 1, width, width)


def _range(subject: Subject, layer: int) -> short_forms.ScoreRange | None:
    return short_forms.score_range(subject.ranges, layer) if "ranges" in subject.rewrites else None


def _constant(name: str, signed: bool, inner: int, note: Recorder) -> None:
    if name == "constant_attn":
        note("multiply_weight", inner)
    elif not signed:
        note("multiply_public", inner)
    else:
        # The compiler multiplies the constant with the secret sign first.
        note("scale_weight", 1)
    if signed:
        note("multiply_weight", inner)


def _project(subject: Subject, layer: int, heads: list[HeadRows], note: Recorder) -> None:
    spec = subject.spec
    reading = sum(head.form != "constant" for head in heads) * (spec.width // len(heads))
    if not reading:
        note("scale_weight", spec.width)
        note("matmul_weight", 1, spec.width, spec.width)
        return
    own_query = subject.only_class_token(layer)
    parts = [reading] * (1 if own_query else 2) + [spec.width]
    if "fused_qkv" in subject.rewrites:
        parts = [sum(parts)]
    for columns in parts:
        note("matmul_weight", spec.tokens, spec.width, columns)
    if own_query:
        note("matmul_weight", 1, spec.width, reading)
    if "fold" not in subject.rewrites:
        note("multiply_public", subject.rows(layer) * reading)


def _by_scores(subject: Subject, layer: int, heads: list[HeadRows], inner: int, note: Recorder) -> None:
    scoring = [head for head in heads if head.form == "scores"]
    tokens = subject.spec.tokens
    found = _range(subject, layer)
    _scaled(subject, scoring, inner, found is not None, note)
    for head in scoring:
        note("matmul", sum(head.scored.values()), inner, tokens)
    _weights(subject, scoring, found, note)
    for head in scoring:
        note("matmul", sum(head.scored.values()), tokens, inner)
    if "late_reciprocal" in subject.rewrites:
        _normalised(scoring, inner, found, note)
    for head in scoring:
        for name, rows in head.scored.items():
            if head.signed and name != "quadratic_attn" and name not in NORMALISED:
                note("multiply_weight", rows * inner)


def _public_scale(tokens: int, name: str | None, short: bool) -> float:
    """What an operator multiplies the scores with; a short exp has a scale like no other."""
    if name == "softmax" and short:
        return -1.0
    return {"squared_attn": tokens**-0.5, "scale_attn": 1 / tokens}.get(name or "", 1.0)


def _scaled(subject: Subject, scoring: list[HeadRows], inner: int, short: bool, note: Recorder) -> None:
    tokens = subject.spec.tokens
    public: dict[tuple[int, str], int] = {}
    secret: dict[tuple[int, str], int] = {}
    for index, head in enumerate(scoring):
        folded = _public_scale(tokens, head.folded, short)
        for name, rows in head.scored.items():
            if _public_scale(tokens, name, short) != folded:
                public[index, name] = rows
            unscaled = head.folded == "quadratic_attn" and name != "quadratic_attn"
            if unscaled or (name in ("linear_attn", "quadratic_attn") and head.folded != name):
                secret[index, name] = rows
            if name == "linear_attn" and unscaled:
                note("multiply_weight", rows * inner)
    if len(public) == 1 and public == secret:
        # The compiler multiplies the two scales with each other first.
        note("scale_weight", 1)
    else:
        note("multiply_public", sum(public.values()) * inner)
    note("multiply_weight", sum(secret.values()) * inner)


def _rows(scoring: list[HeadRows], *names: str) -> int:
    return sum(head.scored.get(name, 0) for head in scoring for name in names)


def _weights(
    subject: Subject, scoring: list[HeadRows], found: short_forms.ScoreRange | None, note: Recorder
) -> None:
    tokens = subject.spec.tokens
    note("square", _rows(scoring, *SQUARE) * tokens)
    exact = _rows(scoring, "softmax")
    if found:
        note("multiply_public", exact)
        note("square", exact * tokens)
        note("multiply", exact * tokens)
        for _ in range(short_forms.exp_squarings(found)):
            note("square", exact * tokens)
    else:
        note("max", exact, tokens)
        note("exp", exact * tokens)
    positive = _rows(scoring, "relu_softmax") * tokens
    note("compare_public", positive)
    note("multiply_bit", positive)
    note("square", _rows(scoring, "two_quad") * tokens)
    if "late_reciprocal" not in subject.rewrites:
        for head in scoring:
            for name in NORMALISED:
                note("divide", head.scored.get(name, 0) * tokens)


def _normalised(
    scoring: list[HeadRows],
    inner: int,
    found: short_forms.ScoreRange | None,
    note: Recorder,
) -> None:
    total = _rows(scoring, *NORMALISED)
    short = _rows(scoring, "softmax") if found else 0
    if found and short:
        note("multiply_public", 2 * short)
        note("square", short)
        steps = short_forms.reciprocal_steps(found)
        for step in range(steps):
            note("multiply", short if step + 1 == steps else 2 * short)
    note("reciprocal", total - short)
    note("multiply_weight", sum(_rows([head], *NORMALISED) for head in scoring if head.signed))
    note("multiply", total * inner)

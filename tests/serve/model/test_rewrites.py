"""Each rewrite: the same logits in the clear, and less to send."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from graphs import SEMI2K, Outcome, mixed_plan, outcome, public_of, small_spec, weights_of, with_ranges
from hypothesis import given, settings
from hypothesis import strategies as st

from privit.artifact import Public
from privit.plan import Plan, plan_from_counts, uniform_plan
from privit.program.choices import Rewrites, merging_pays, product_bytes
from privit.serve.compile.compile import Input, program_of
from privit.serve.engine.simulator import Simulator
from privit.serve.model.rows import by_groups, gather_rows, take_rows

SPEC = small_spec(layer_scale=True)


# With as few tokens as SPEC has, scores are cheaper than what stands in for them.
LONG = replace(SPEC, image_size=16)


@cache
def with_all(kind: str) -> Outcome:
    return outcome(*_model(kind))


def _model(kind: str) -> tuple[Public, Plan, dict[str, np.ndarray]]:
    spec = LONG if kind == "linear" else SPEC
    plan = {
        "mixed": lambda: mixed_plan(spec),
        "few": lambda: plan_from_counts(spec, [0, 0], [2, 2]),
        "linear": lambda: uniform_plan(spec, "identity", "scale_attn"),
    }[kind]()
    return public_of(spec), plan, weights_of(spec, plan)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fold", "mixed"),
        ("fused_qkv", "mixed"),
        ("merge_mlp", "few"),
        ("class_token_last", "mixed"),
        ("linear_attention", "linear"),
        ("late_reciprocal", "mixed"),
    ],
)
def test_turning_a_rewrite_off_keeps_the_logits_and_sends_more(name: str, kind: str) -> None:
    off, on = outcome(*_model(kind), replace(Rewrites(), **{name: False})), with_all(kind)
    assert np.abs(off.clear - on.clear).max() < 1e-3
    assert np.abs(off.simulated - off.clear).max() < 0.02
    bytes_saved, rounds_saved = (
        off.counts.sent_bytes - on.counts.sent_bytes,
        off.counts.rounds - on.counts.rounds,
    )
    assert bytes_saved > 0 or rounds_saved > 0, (bytes_saved, rounds_saved)


def test_public_ranges_keep_the_logits_and_save_most_rounds() -> None:
    public, plan, weights = _model("mixed")
    short = outcome(with_ranges(public, plan, weights), plan, weights)
    generic = with_all("mixed")
    # What the short forms approximate shows in the clear; 5e-3 is what a softmax weight may be off by.
    assert np.abs(short.clear - generic.clear).max() < 5e-3
    assert np.abs(short.simulated - short.clear).max() < 0.02
    assert short.counts.rounds < 0.7 * generic.counts.rounds
    assert short.counts.sent_bytes < generic.counts.sent_bytes


def test_without_ranges_nothing_but_the_generic_functions_is_used() -> None:
    public, plan, weights = _model("mixed")
    ranged = with_ranges(public, plan, weights)
    off = outcome(ranged, plan, weights, Rewrites(ranges=False))
    assert off.code == with_all("mixed").code


def _cost(function, *shapes: tuple[int, ...]):
    inputs = tuple(Input(f"x{i}", shape, "server") for i, shape in enumerate(shapes))
    program = program_of(lambda values: function(*(values[entry.name] for entry in inputs)), inputs)
    rng = np.random.default_rng(0)
    values = {entry.name: rng.standard_normal(entry.shape) for entry in inputs}
    with Simulator(SEMI2K) as simulator:
        simulator.give(inputs, values)
        counts = simulator.run(program.executable)
        return counts, simulator.open(program.output), program.code, list(values.values())


def test_computing_each_row_once_sends_less_than_computing_both_and_blending() -> None:
    rows, kept = np.arange(40), np.arange(0, 40, 4)
    rest = np.setdiff1d(rows, kept)
    mask = np.isin(rows, kept)[:, None].astype(np.float32)
    apart = _cost(lambda x: by_groups(x, [(kept, jnp.exp), (rest, jnp.square)]), (40, 8))
    blend = _cost(lambda x: mask * jnp.exp(x) + (1 - mask) * jnp.square(x), (40, 8))
    assert apart[0].sent_bytes < 0.5 * blend[0].sent_bytes
    # The engine rounds each exp on its own; the largest here is about 20.
    assert np.abs(apart[1] - blend[1]).max() < 0.05


def test_static_slices_leave_no_loop_and_no_scatter_in_the_program() -> None:
    kept = np.array([1, 5, 6, 11])
    rest = np.setdiff1d(np.arange(12), kept)
    groups = [(kept, jnp.square), (rest, lambda x: x)]
    slices = _cost(lambda x: by_groups(x, groups), (12, 4))
    scatter = _cost(lambda x: by_groups(x, groups, scatter=True), (12, 4))
    np.testing.assert_allclose(slices[1], scatter[1], atol=1e-3)
    assert slices[0].sent_bytes <= scatter[0].sent_bytes
    assert "pphlo.while" not in slices[2]
    assert slices[2].count("\n") < scatter[2].count("\n")


def test_a_product_costs_the_bytes_that_the_merging_rule_counts_with() -> None:
    counts, *_ = _cost(lambda x, y: x @ y, (24, 16), (16, 8))
    assert counts.sent_bytes == product_bytes(24, 16, 8)
    assert counts.rounds == 2


def test_merging_pays_where_few_tokens_keep_their_gelu() -> None:
    assert merging_pays(197, 197, 192, 768)
    assert merging_pays(197, 196, 192, 768)
    assert not merging_pays(197, 0, 192, 768)
    # One of very few tokens: the weights of both paths would be opened for it.
    assert not merging_pays(4, 1, 192, 768)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 12).flatmap(lambda n: st.permutations(range(n))))
def test_rows_taken_apart_and_merged_come_back_in_place(order: list[int]) -> None:
    x = jnp.arange(2.0 * len(order)).reshape(-1, 2)
    index = np.array(order)
    assert np.array_equal(take_rows(x, index), np.asarray(x)[index])
    assert np.array_equal(gather_rows(x, index), np.asarray(x)[index])
    cut = len(order) // 2
    parts = [(np.sort(part), lambda rows: rows + 1) for part in (index[:cut], index[cut:]) if part.size]
    assert np.array_equal(by_groups(x, parts), np.asarray(x) + 1)

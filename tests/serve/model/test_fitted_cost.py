"""What fitted stand-ins cost next to the paper's, measured in the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import SEMI2K, outcome, public_of, small_spec, weights_of

from privit.plan import uniform_plan
from privit.program.choices import Rewrites
from privit.serve.engine.profile import Counts
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.probes import probe

UNMERGED = Rewrites(merge_mlp=False, ranges=False)


def counts(gelu: str, softmax: str) -> Counts:
    spec = small_spec()
    plan = uniform_plan(spec, gelu, softmax)
    return outcome(public_of(spec), plan, weights_of(spec, plan), UNMERGED).counts


def test_fitted_attention_costs_what_squared_attn_costs() -> None:
    paper, fitted = counts("identity", "squared_attn"), counts("identity", "quadratic_attn")
    assert (fitted.sent_bytes, fitted.rounds) == (paper.sent_bytes, paper.rounds)


def test_a_quadratic_gelu_costs_one_square_a_layer_more_than_the_identity() -> None:
    spec = small_spec()
    paper, fitted = counts("identity", "squared_attn"), counts("quadratic", "squared_attn")
    # The last block runs for the class token alone.
    sizes = [block.mlp_width * tokens for block, tokens in zip(spec.blocks, (spec.tokens, 1), strict=True)]
    with Simulator(SEMI2K) as simulator:
        squares = [probe(simulator, "square", (size,))[0] for size in sizes]
    assert fitted.rounds - paper.rounds == sum(square.rounds[0] for square in squares)
    assert fitted.sent_bytes - paper.sent_bytes == sum(square.sent_bytes[0] for square in squares)


@pytest.mark.parametrize("gelu", ["quadratic", "affine"])
def test_fitted_stand_ins_are_right_under_sharing(gelu: str) -> None:
    spec = small_spec()
    plan = uniform_plan(spec, gelu, "quadratic_attn")
    found = outcome(public_of(spec), plan, weights_of(spec, plan))
    assert np.abs(found.clear - found.simulated).max() < 0.02

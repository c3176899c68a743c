from __future__ import annotations

import numpy as np
import pytest
from graphs import clear, image_of, mixed_plan, public_of, small_spec, weights_of, with_ranges

from privit.errors import RequestError
from privit.program.forms import short_root
from privit.program.ranges import WATCHED_MARGINS, score_range, unwatched, variance_range
from privit.serve.compile.compile import client_values, server_values
from privit.serve.model.forward import cut_patches


def test_patches_run_row_by_row_with_channels_first_inside() -> None:
    spec = small_spec()
    pixels = np.arange(64, dtype=np.float32).reshape(1, 8, 8)
    patches = cut_patches(spec, pixels)
    assert patches.shape == (spec.patches, spec.patch_values)
    np.testing.assert_array_equal(patches[1].reshape(4, 4), pixels[0, :4, 4:])
    np.testing.assert_array_equal(patches[2].reshape(4, 4), pixels[0, 4:, :4])


def test_an_image_of_another_size_is_refused_with_both_shapes() -> None:
    with pytest.raises(RequestError, match=r"\(3, 8, 8\), but the model reads \(1, 8, 8\)"):
        client_values(public_of(small_spec()), np.zeros((3, 8, 8), np.float32))


def test_the_residual_stream_of_folded_weights_has_mean_zero() -> None:
    spec = small_spec()
    plan = mixed_plan(spec)
    values = server_values(public_of(spec), plan, weights_of(spec, plan))
    for name in ("embed.weight", "embed.offset", "blocks.0.out.weight", "blocks.0.out.bias"):
        assert np.abs(values[name].mean(axis=-1)).max() < 1e-6, name


def test_short_forms_stay_close_for_an_image_that_the_ranges_never_saw() -> None:
    spec = small_spec()
    plan = mixed_plan(spec)
    weights, public = weights_of(spec, plan), public_of(spec)
    ranged = with_ranges(public, plan, weights)
    assert ranged.ranges
    assert np.abs(clear(ranged, plan, weights) - clear(public, plan, weights)).max() < 5e-3
    assert not np.array_equal(image_of(spec, 1), image_of(spec, 2))


def test_ranges_are_widened_and_missing_ones_are_missing() -> None:
    found = variance_range({"norm.variance_low": 1.0, "norm.variance_high": 2.0}, "norm")
    assert found is not None
    assert found.low < 1 < 2 < found.high
    assert variance_range({}, "norm") is None
    assert variance_range({"norm.variance_low": 0.0, "norm.variance_high": 2.0}, "norm") is None
    assert score_range({"blocks.0.softmax.drop": 1.0}, 0) is None


def test_variances_that_a_guard_watches_have_narrower_margins() -> None:
    seen = {"norm.variance_low": 1.0, "norm.variance_high": 8.0}
    wide, narrow = variance_range(seen, "norm"), variance_range(seen | WATCHED_MARGINS, "norm")
    assert wide is not None
    assert narrow is not None
    assert wide.low < narrow.low < 1 < 8 < narrow.high < wide.high
    assert unwatched(seen | WATCHED_MARGINS) == seen
    wide_root, narrow_root = (short_root(found.low, found.high) for found in (wide, narrow))
    assert wide_root is None, "eight to one is too wide for a short rsqrt with the wide margins"
    assert narrow_root is not None
    assert narrow_root.steps < 5

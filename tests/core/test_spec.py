"""Sizes, sites and weight shapes follow from the spec, and impossible specs are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privit.errors import RequestError
from privit.spec import Block, Granularity, Spec, sites, vit_spec, weight_shapes, with_image_size

VIT_BASE = vit_spec(224, 16, 768, 12, 12, 1000)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Specs of every shape, with blocks that differ."""
    patch, heads = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    blocks = st.builds(Block, st.just(heads), st.integers(1, 9), st.booleans())
    class_token = draw(st.booleans())
    return Spec(
        image_size=patch * draw(st.integers(1, 4)),
        patch_size=patch,
        channels=draw(st.sampled_from([1, 3])),
        width=heads * draw(st.integers(1, 4)),
        classes=draw(st.integers(1, 5)),
        blocks=tuple(draw(st.lists(blocks, min_size=1, max_size=3))),
        class_token=class_token,
        pooling=draw(st.sampled_from(["cls", "mean"])) if class_token else "mean",
        gelu=draw(st.sampled_from(["erf", "tanh"])),
    )


@given(specs())
def test_a_spec_survives_json(spec: Spec) -> None:
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@given(specs())
def test_there_is_a_site_array_for_each_layer_and_kind(spec: Spec) -> None:
    for gelu, softmax in (("token", "row"), ("element", "head"), ("layer", "layer")):
        found = sites(spec, Granularity(gelu, softmax))  # type: ignore[arg-type]
        assert [len(found[kind]) for kind in ("gelu", "softmax")] == [spec.depth, spec.depth]


def test_vit_base_has_the_nonlinearities_that_the_engine_notes_count() -> None:
    counts = {k: sum(map(np.prod, v)) for k, v in sites(VIT_BASE, Granularity("element", "row")).items()}
    assert counts == {"gelu": 12 * 197 * 3072, "softmax": 12 * 12 * 197, "norm": 25}
    assert (counts["gelu"], counts["softmax"]) == (7_262_208, 28_368)


def test_vit_base_has_its_published_number_of_weights() -> None:
    assert sum(int(np.prod(shape)) for shape in weight_shapes(VIT_BASE).values()) == 86_567_656


def test_another_image_size_changes_only_the_tokens() -> None:
    smaller = with_image_size(VIT_BASE, 112)
    assert (VIT_BASE.tokens, smaller.tokens) == (197, 50)
    assert replace(smaller, image_size=224) == VIT_BASE


def test_layer_scale_adds_two_vectors_per_block() -> None:
    plain, scaled = (weight_shapes(vit_spec(8, 4, 8, 3, 2, 2, layer_scale=flag)) for flag in (False, True))
    assert scaled.keys() - plain.keys() == {f"blocks.{i}.scale{n}" for i in range(3) for n in (1, 2)}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"image_size": 30}, "image size 30 is not divisible by patch size 4"),
        ({"width": 10}, "width 10 is not divisible by 3 heads"),
        ({"class_token": False}, "pooling is by class token, but the model has none"),
        ({"blocks": ()}, "no blocks"),
        ({"channels": 4}, "4 channels"),
        ({"patch_size": 0}, "patch size is 0"),
    ],
)
def test_a_spec_that_describes_no_model_is_refused(change: dict[str, Any], found: str) -> None:
    with pytest.raises(RequestError, match=found):
        replace(vit_spec(32, 4, 12, 2, 3, 10), **change)


def test_all_problems_of_a_spec_come_in_one_error() -> None:
    with pytest.raises(RequestError, match=r"image size 30 .*; block 0: width 10 .*; block 1"):
        vit_spec(30, 4, 10, 2, 3, 10)

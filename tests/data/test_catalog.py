"""Architectures by name agree with what conversion finds in the real models."""

import pytest

from privit.data.catalog import catalog_spec
from privit.errors import RequestError


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit_tiny_patch16_224", "deit3_small_patch16_224"])
def test_a_catalog_spec_is_the_spec_of_the_converted_model(name):
    timm = pytest.importorskip("timm")
    from privit.train.hosts.convert import convert_timm

    spec, _ = convert_timm(timm.create_model(name, pretrained=False))
    assert catalog_spec(name) == spec


def test_another_image_size_changes_only_the_tokens():
    spec = catalog_spec("vit_tiny_patch16_224", image_size=112)
    assert (spec.tokens, spec.width) == (50, 192)


@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "vit_medium_patch16_224", "resnet50"])
def test_an_unknown_architecture_is_refused_with_what_is_known(name):
    with pytest.raises(RequestError, match="no architecture") as refusal:
        catalog_spec(name)
    assert "vit_tiny_patchP_S" in refusal.value.hint


def test_the_backbones_of_mpcvit_have_the_paper_s_sizes():
    cifar, tiny = catalog_spec("mpcvit_cifar"), catalog_spec("mpcvit_tinyimagenet")
    assert (cifar.tokens, cifar.depth, cifar.blocks[0].mlp_width) == (65, 7, 512)
    assert (tiny.tokens, tiny.depth, tiny.blocks[0].heads) == (257, 9, 12)

"""LayerNorms with sites: what each multiplies tokens with, what goes on to the next, and fewer tokens."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from privit.operators import BY_NAME
from privit.plan import uniform_plan
from privit.spec import KINDS, Granularity, Spec, sites, vit_spec, with_tokens
from privit.train.student.norms import NormSites, averaging, mix_patches
from privit.train.student.vit import Student

EPS = 1e-6
SPEC = vit_spec(16, 4, 16, 3, 2, 3, channels=1)
CLASSES = Granularity(norm="class")


def norm_sites(*names: str, stand_in: str = "reused_norm", first: bool = True) -> NormSites:
    """The sites of one layer, frozen to these operators; a name with / is for class token / patches."""
    split = [name.split("/") for name in names]
    shape = (len(names),) if len(split[0]) == 1 else (len(names), 2)
    made = NormSites(shape, first, True, EPS, "layer_norm", stand_in)
    made.freeze(np.array([[BY_NAME[n].id for n in pair] for pair in split]).reshape(shape))
    for name, parameter in made.named_parameters():
        torch.manual_seed(len(name))
        parameter.data.uniform_(0.5, 2.0)
    return made


def variances(seed: int = 0) -> Tensor:
    return torch.rand(2, 5, 1, generator=torch.Generator().manual_seed(seed)) + 0.2


def make_student(spec: Spec, stand_in: str, granularity: Granularity | None = None) -> Student:
    torch.manual_seed(0)
    student = Student(spec, granularity, stand_in={"norm": stand_in}, kinds=KINDS)
    for name, parameter in student.named_parameters():
        if not name.endswith(".switch"):
            parameter.data += 0.2 * torch.randn_like(parameter)
    return student.double().eval()


def make_images(spec: Spec = SPEC) -> Tensor:
    size = (3, spec.channels, spec.image_size, spec.image_size)
    return torch.randn(size, generator=torch.Generator().manual_seed(1)).double()


def test_reused_norms_in_a_row_multiply_the_exact_factor_by_one_scalar_after_another() -> None:
    layer = norm_sites("layer_norm", "reused_norm", "reused_norm")
    exact, passed = layer.factor(0, variances(), None)
    torch.testing.assert_close(exact, (variances() + EPS).rsqrt())
    s = layer.reused_norm["s"]
    first, passed = layer.factor(1, variances(1), passed)
    torch.testing.assert_close(first, s[1] * exact)
    second, _ = layer.factor(2, variances(2), passed)
    torch.testing.assert_close(second, s[1] * s[2] * exact)


def test_a_fixed_norm_passes_by_what_came_to_it() -> None:
    layer = norm_sites("layer_norm", "fixed_norm", "reused_norm")
    exact, passed = layer.factor(0, variances(), None)
    fixed, passed = layer.factor(1, variances(1), passed)
    torch.testing.assert_close(fixed, layer.fixed_norm["s"][1].expand(2, 5, 1))
    torch.testing.assert_close(layer.factor(2, variances(2), passed)[0], layer.reused_norm["s"][2] * exact)


def test_a_linear_norm_computes_a_factor_that_may_be_reused() -> None:
    layer = norm_sites("linear_norm", "reused_norm")
    own, passed = layer.factor(0, variances(), None)
    torch.testing.assert_close(own, layer.linear_norm["a"][0] + layer.linear_norm["b"][0] * variances())
    torch.testing.assert_close(layer.factor(1, variances(1), passed)[0], layer.reused_norm["s"][1] * own)


def test_class_token_and_patches_may_have_norms_of_their_own() -> None:
    layer = norm_sites("layer_norm/layer_norm", "layer_norm/reused_norm")
    before, passed = layer.factor(0, variances(), None)
    factor, _ = layer.factor(1, variances(1), passed)
    torch.testing.assert_close(factor[:, :1], (variances(1)[:, :1] + EPS).rsqrt())
    torch.testing.assert_close(factor[:, 1:], layer.reused_norm["s"][1, 1] * before[:, 1:])
    alone, _ = layer.factor(1, variances(1)[:, 1:], passed[:, 1:], rows="patches")
    torch.testing.assert_close(alone, factor[:, 1:])


@pytest.mark.parametrize("stand_in", ["reused_norm", "linear_norm", "fixed_norm"])
def test_a_switch_mixes_the_exact_factor_and_the_stand_in(stand_in: str) -> None:
    layer = NormSites((2,), True, True, EPS, "layer_norm", stand_in)
    _, carried = layer.factor(0, variances(), None)
    ends = []
    for value in (0.0, 1.0, 0.25):
        layer.switch.data.fill_(value)
        ends.append(layer.factor(1, variances(1), carried)[0])
    torch.testing.assert_close(ends[1], (variances(1) + EPS).rsqrt())
    torch.testing.assert_close(ends[2], 0.25 * ends[1] + 0.75 * ends[0])


def test_the_switch_of_a_first_norm_stays_where_nothing_can_be_reused() -> None:
    for stand_in, pinned in (("reused_norm", 1.0), ("linear_norm", 0.0)):
        layer = NormSites((2,), True, True, EPS, "layer_norm", stand_in)
        layer.switch.data.fill_(-1.0)
        layer.clamp_()
        assert layer.switch.tolist() == [pinned, 0.0]
    assert norm_sites("layer_norm", "layer_norm").ids_where(np.zeros(2, bool)).tolist() == [32, 33]


@pytest.mark.parametrize("granularity", [Granularity(), CLASSES], ids=["layer", "class"])
@pytest.mark.parametrize("stand_in", ["reused_norm", "linear_norm", "fixed_norm"])
def test_freezing_norm_switches_that_are_zero_or_one_changes_nothing(
    granularity: Granularity, stand_in: str
) -> None:
    spec = with_tokens(SPEC, [17, 5, 5])
    student, images = make_student(spec, stand_in, granularity), make_images()
    assert [tuple(s.shape) for s in student.switches("norm")] == sites(spec, granularity)["norm"]
    for layer, switch in zip(student.sites_of("norm"), student.switches("norm"), strict=True):
        switch.data = (torch.rand_like(switch) > 0.5).double()
        layer.clamp_()
    frozen = copy.deepcopy(student)
    frozen.set_plan(student.plan())
    for model in (student, frozen):
        model(images).square().sum().backward()
    # A linear norm lets tokens grow, so that errors mean something beside the largest value alone.
    torch.testing.assert_close(frozen(images), student(images), atol=1e-10, rtol=1e-10)
    largest = max(float(parameter.grad.abs().max()) for parameter in frozen.parameters())
    for name, parameter in frozen.named_parameters():
        found = student.get_parameter(name).grad
        torch.testing.assert_close(parameter.grad, found, atol=1e-10 * largest, rtol=1e-6)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("final_norm", ["before_pool", "after_pool"])
def test_norms_that_are_all_exact_are_those_of_torch(pooling: str, final_norm: str) -> None:
    spec = vit_spec(16, 4, 16, 3, 2, 3, channels=1, pooling=pooling, final_norm=final_norm)
    student = make_student(spec, "reused_norm")
    plain = copy.deepcopy(student)
    plain.set_plan(uniform_plan(spec, granularity=plain.granularity))
    for kind in ("gelu", "softmax"):
        student.freeze(kind, list(plain.plan().layers[kind]))
    assert plain.plain_norms
    assert not student.plain_norms
    torch.testing.assert_close(student(make_images()), plain(make_images()), atol=1e-10, rtol=0)


def test_averaging_takes_neighbours_on_the_grid_and_weighs_them_alike() -> None:
    matrix = averaging(16, 4)
    picture = torch.arange(16.0).reshape(4, 4)
    expected = torch.stack([picture[r : r + 2, c : c + 2].mean() for r in (0, 2) for c in (0, 2)])
    torch.testing.assert_close(matrix @ picture.reshape(16), expected)
    for before, after in ((49, 16), (49, 9), (16, 5)):
        torch.testing.assert_close(averaging(before, after).sum(1), torch.ones(after))
        assert (averaging(before, after).sum(0) > 0).all()


def test_a_pool_mixes_patches_and_their_factors_and_leaves_the_class_token() -> None:
    tokens, matrix = torch.randn(2, 17, 16), averaging(16, 4)
    mixed = mix_patches(matrix, tokens, 1)
    torch.testing.assert_close(mixed[:, 0], tokens[:, 0])
    torch.testing.assert_close(mixed[:, 1:], torch.einsum("mn,bnd->bmd", matrix, tokens[:, 1:]))
    spec = with_tokens(SPEC, [17, 5, 5])
    student = Student(spec)
    seen: dict[str, int] = {}
    student(make_images().float(), lambda name, value: seen.update({name: value.shape[1]}))
    assert [seen[f"blocks.{i}.residual1"] for i in range(3)] == [17, 5, 5]
    assert "blocks.1.pool.weight" in student.weights()

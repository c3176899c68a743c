"""Switches mix two operators while they are searched; frozen sites run one operator each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from privit.errors import BudgetError, RequestError
from privit.operators import TABLE, operator
from privit.spec import Shape
from privit.train.descent.binarize import keep_ranked
from privit.train.student.activations import FUNCTIONS
from privit.train.student.switch import Sites

HEADS, TOKENS, CHANNELS = 3, 5, 4
SHAPES: dict[str, list[Shape]] = {
    "gelu": [(TOKENS,), (TOKENS, CHANNELS), ()],
    "softmax": [(HEADS, TOKENS), (HEADS,), ()],
}
CASES = [(kind, shape) for kind, shapes in SHAPES.items() for shape in shapes]


def make_sites(kind: str, shape: Shape, exact: str | None = None, stand_in: str | None = None) -> Sites:
    """Sites in double precision with random switches and random parameters."""
    owners, setting = {"gelu": (CHANNELS, "erf"), "softmax": (HEADS, TOKENS)}[kind]
    default = {"gelu": ("gelu", "identity"), "softmax": ("softmax", "squared_attn")}[kind]
    sites = Sites(kind, shape, owners, setting, exact or default[0], stand_in or default[1]).double()  # type: ignore[arg-type]
    randomise_(sites)
    return sites


def randomise_(sites: Sites) -> None:
    torch.manual_seed(1)
    for parameter in sites.parameters():
        parameter.data = torch.rand_like(parameter.data, dtype=torch.float64)


def make_values(kind: str) -> Tensor:
    torch.manual_seed(0)
    shape = (2, TOKENS, CHANNELS) if kind == "gelu" else (2, HEADS, TOKENS, TOKENS)
    return (torch.randn(shape) * 2).double()


def run_one(sites: Sites, name: str, values: Tensor) -> Tensor:
    """One operator on all values, straight from the table's function."""
    held = getattr(sites, name) if operator(name).parameters else {}
    trailing = () if sites.kind == "gelu" else (1, 1)
    parameters = {key: v if v.dim() > 1 else v.reshape(-1, *trailing) for key, v in held.items()}
    return FUNCTIONS[name](values, parameters, sites.setting)


def pairs() -> Iterator[tuple[str, str, str]]:
    for kind in SHAPES:
        exact = [entry.name for entry in TABLE if entry.kind == kind and entry.exact]
        rest = [entry.name for entry in TABLE if entry.kind == kind and not entry.exact]
        yield from ((kind, first, second) for first, second in itertools.product(exact, rest))


@pytest.mark.parametrize(("kind", "exact", "stand_in"), list(pairs()))
def test_a_switch_mixes_its_two_operators(kind: str, exact: str, stand_in: str) -> None:
    sites, values = make_sites(kind, SHAPES[kind][0], exact, stand_in), make_values(kind)
    assert sites.switch is not None
    c = sites.switch.unsqueeze(-1)
    expected = c * run_one(sites, exact, values) + (1 - c) * run_one(sites, stand_in, values)
    torch.testing.assert_close(sites(values), expected)


@pytest.mark.parametrize(("kind", "exact", "stand_in"), list(pairs()))
def test_gradients_of_a_mix_are_those_of_its_values(kind: str, exact: str, stand_in: str) -> None:
    sites, values = make_sites(kind, SHAPES[kind][0], exact, stand_in), make_values(kind).requires_grad_()
    names, parameters = zip(*sites.named_parameters(), strict=True)

    def run(values: Tensor, *given: Tensor) -> Tensor:
        return torch.func.functional_call(sites, dict(zip(names, given, strict=True)), (values,))

    assert torch.autograd.gradcheck(run, (values, *parameters))


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_a_switch_of_every_granularity_gets_its_gradient(kind: str, shape: Shape) -> None:
    sites, values = make_sites(kind, shape), make_values(kind).requires_grad_()
    assert sites.switch is not None
    assert sites.switch.shape == shape
    assert torch.autograd.gradcheck(
        lambda values, c: torch.func.functional_call(sites, {"switch": c}, (values,)), (values, sites.switch)
    )


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_all_switches_at_one_give_the_exact_operator_to_the_bit(kind: str, shape: Shape) -> None:
    sites, values = make_sites(kind, shape), make_values(kind)
    assert sites.switch is not None
    nn.init.ones_(sites.switch)
    assert torch.equal(sites(values), run_one(sites, sites.exact.name, values))


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_frozen_sites_run_any_number_of_operators(kind: str, shape: Shape) -> None:
    sites, values = make_sites(kind, shape), make_values(kind)
    entries = [entry for entry in TABLE if entry.kind == kind]
    ids = np.random.default_rng(0).permutation(np.resize([e.id for e in entries], int(np.prod(shape))))
    sites.freeze(ids.reshape(shape).astype(np.uint8))
    randomise_(sites)
    expected = torch.zeros_like(values)
    for entry in entries:
        here = torch.from_numpy(sites.current_ids(0)) == entry.id
        here = here.reshape(shape + (1,) * (values.dim() - 1 - len(shape)))
        if here.any():
            expected = torch.where(here, run_one(sites, entry.name, values), expected)
    torch.testing.assert_close(sites(values), expected)
    leaf = values.requires_grad_()
    assert torch.autograd.gradcheck(sites, (leaf,))


def test_layers_around_sites_by_token_see_every_token_once() -> None:
    sites = make_sites("gelu", (TOKENS,))
    sites.freeze(np.array([0, 1, 5, 1, 0], dtype=np.uint8))
    before, after = nn.Linear(3, CHANNELS).double(), nn.Linear(CHANNELS, 2).double()
    x = torch.randn(2, TOKENS, 3).double()
    torch.testing.assert_close(sites.between(before, x, after), after(sites(before(x))))


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_freezing_removes_the_switch_from_the_parameters(kind: str, shape: Shape) -> None:
    sites = make_sites(kind, shape)
    assert [name for name, _ in sites.named_parameters()] == ["switch"]
    sites.freeze(np.full(shape, sites.exact.id))
    assert sites.frozen
    assert list(sites.parameters()) == []
    assert sites.state_dict() == {}


class CountElements(TorchDispatchMode):
    """Adds up how many values each operation puts out."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            name = func.overloadpacket.__name__
            self.elements[name] = self.elements.get(name, 0) + result.numel()
        return result


@pytest.mark.parametrize(("kind", "shape"), CASES)
@pytest.mark.parametrize("kept_share", [0.0, 0.4, 1.0])
def test_frozen_sites_compute_only_the_branch_they_keep(kind: str, shape: Shape, kept_share: float) -> None:
    sites, values = make_sites(kind, shape), make_values(kind).requires_grad_()
    size = int(np.prod(shape))
    kept = (np.arange(size) < round(kept_share * size)).reshape(shape)
    sites.freeze(sites.ids_where(kept))
    with CountElements() as count:
        sites(values).sum().backward()
    share = kept.mean()
    expected = {"gelu": ("gelu", "gelu_backward"), "softmax": ("_softmax", "_softmax_backward_data")}[kind]
    for name in expected:
        assert count.elements.get(name, 0) == round(share * values.numel())
    if kind == "softmax":
        squares = count.elements.get("square", 0) + count.elements.get("pow", 0)
        assert (squares > 0) == (share < 1)


@pytest.mark.parametrize(
    ("kind", "stand_in"), [("gelu", "identity"), ("gelu", "quadratic"), ("softmax", "squared_attn")]
)
def test_the_search_keeps_no_more_for_backward_than_the_values_and_the_switch(
    kind: str, stand_in: str
) -> None:
    sites, values = make_sites(kind, SHAPES[kind][0], None, stand_in), make_values(kind).requires_grad_()
    saved: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        sites(values)
    assert sum(size >= values.numel() for size in saved) == 1


def test_parameters_exist_only_for_operators_in_use_and_keep_their_values() -> None:
    sites = make_sites("softmax", (HEADS,), stand_in="quadratic_attn")
    fitted = sites.get_parameter("quadratic_attn.c2").detach().clone()
    sites.freeze(np.array([16, 22, 24], dtype=np.uint8))
    assert {name for name, _ in sites.named_parameters()} == {
        "quadratic_attn.c2",
        "quadratic_attn.c1",
        "quadratic_attn.c0",
        "constant_attn.c0",
    }
    assert torch.equal(sites.get_parameter("quadratic_attn.c2"), fitted)
    torch.testing.assert_close(sites.get_parameter("constant_attn.c0"), torch.full((HEADS,), 1 / TOKENS))
    sites.freeze(np.array([16, 17, 17], dtype=np.uint8))
    assert list(sites.parameters()) == []


def test_an_operator_of_the_other_kind_cannot_be_a_stand_in() -> None:
    with pytest.raises(RequestError, match="no gelu operator is called 'squared_attn'"):
        make_sites("gelu", (TOKENS,), stand_in="squared_attn")


@pytest.mark.parametrize("kind", SHAPES)
def test_half_precision_values_stay_half_and_the_switch_keeps_full_precision(kind: str) -> None:
    sites = make_sites(kind, SHAPES[kind][0]).float()
    values = make_values(kind).bfloat16().requires_grad_()
    assert sites.switch is not None
    result = sites(values)
    result.float().sum().backward()
    assert result.dtype == values.dtype
    assert sites.switch.grad is not None
    assert sites.switch.grad.dtype == torch.float32
    torch.testing.assert_close(result.float(), sites(values.float()), atol=0.05, rtol=0.05)


layers_of_switches = st.lists(
    st.lists(st.floats(0, 1), min_size=1, max_size=8).map(np.array), min_size=1, max_size=4
)


@given(layers_of_switches, st.floats(0, 1))
def test_ranking_spends_the_budget_and_keeps_the_largest(layers: list[np.ndarray], share: float) -> None:
    budget = int(share * sum(layer.size for layer in layers))
    kept = keep_ranked(layers, budget)
    assert [mask.shape for mask in kept] == [layer.shape for layer in layers]
    mask, values = np.concatenate(kept), np.concatenate(layers)
    assert mask.sum() == budget
    if 0 < budget < mask.size:
        assert values[mask].min() >= values[~mask].max()


@given(layers_of_switches, st.integers(0, 30))
def test_a_larger_budget_only_adds_sites(layers: list[np.ndarray], budget: int) -> None:
    total = sum(layer.size for layer in layers)
    smaller, larger = min(budget, total), min(budget + 1, total)
    first, second = keep_ranked(layers, smaller), keep_ranked(layers, larger)
    assert all((a <= b).all() for a, b in zip(first, second, strict=True))


def test_ties_are_broken_by_position() -> None:
    kept = keep_ranked([np.ones(3), np.ones((2, 2))], 4)
    assert kept[0].tolist() == [True] * 3
    assert kept[1].tolist() == [[True, False], [False, False]]


def test_a_layer_wide_switch_is_ranked_like_any_other() -> None:
    kept = keep_ranked([np.array(0.2), np.array(0.9)], 1)
    assert [(mask.shape, bool(mask)) for mask in kept] == [((), False), ((), True)]


def test_a_budget_above_the_sites_is_refused() -> None:
    with pytest.raises(BudgetError, match="budget is 9, but the model has 3 sites"):
        keep_ranked([np.ones(3)], 9)

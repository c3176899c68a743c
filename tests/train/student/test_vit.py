"""The student: the host's logits with every switch at 1, and what its plan says once it is frozen."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from privit.errors import ArtifactError
from privit.plan import Plan, all_weight_shapes, swap_operator, uniform_plan
from privit.spec import PAPER_KINDS, Granularity, Spec, sites, vit_spec, weight_shapes
from privit.train.baselines import random_plan
from privit.train.descent.binarize import keep_ranked
from privit.train.student.activations import FUNCTIONS
from privit.train.student.vit import Student

GRANULARITIES = [
    Granularity(*pair) for pair in itertools.product(("token", "element", "layer"), ("row", "head", "layer"))
]  # type: ignore[arg-type]
SPECS = {
    "cls": vit_spec(8, 4, 12, 2, 3, 4, channels=1),
    "cls, layer scale, tanh": vit_spec(8, 4, 12, 2, 3, 4, channels=1, layer_scale=True, gelu="tanh"),
    "mean before norm": vit_spec(8, 4, 12, 2, 3, 4, channels=1, pooling="mean", final_norm="after_pool"),
    "mean after norm, no class token": vit_spec(
        8, 4, 12, 2, 3, 4, channels=1, pooling="mean", class_token=False
    ),
}


def make_student(spec: Spec, *arguments: Any, seed: int = 0, **changes: Any) -> Student:
    """A student in double precision with random weights in every place."""
    torch.manual_seed(seed)
    student = Student(spec, *arguments, **changes).double()
    for name, parameter in student.named_parameters():
        if not name.endswith(".switch"):
            parameter.data = parameter.data + 0.3 * torch.randn_like(parameter)
    return student.eval()


def make_images(spec: Spec, count: int = 2) -> torch.Tensor:
    torch.manual_seed(7)
    return torch.randn(count, spec.channels, spec.image_size, spec.image_size).double()


def plainly(spec: Spec, weights: dict[str, np.ndarray], plan: Plan, image: np.ndarray) -> np.ndarray:
    """The network once more, one image and one site at a time, in numpy."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}

    def norm(x: np.ndarray, at: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return (
            centred / np.sqrt((centred**2).mean(-1, keepdims=True) + spec.norm_eps) * w[at + ".weight"]
            + w[at + ".bias"]
        )

    def site(kind: str, layer: int, index: tuple[int, ...]) -> str:
        ids = plan.layers[kind][layer]
        return next(entry.name for entry in plan.operators(kind, layer) if entry.id == ids[index[: ids.ndim]])

    def run(name: str, kind: str, layer: int, owner: int | slice, x: np.ndarray, setting: Any) -> np.ndarray:
        at = f"blocks.{layer}.{kind}.{name}."
        parameters = {k.removeprefix(at): torch.tensor(v[owner]) for k, v in w.items() if k.startswith(at)}
        return FUNCTIONS[name](torch.tensor(x), parameters, setting).numpy()

    side, patch = spec.image_size // spec.patch_size, spec.patch_size
    patches = [
        image[:, r * patch : (r + 1) * patch, c * patch : (c + 1) * patch].ravel()
        for r in range(side)
        for c in range(side)
    ]
    x = np.stack(patches) @ w["patch.weight"].T + w["patch.bias"]
    if spec.class_token:
        x = np.concatenate([w["class_token"][None], x])
    x = x + w["position"]
    for i, block in enumerate(spec.blocks):
        at, d = f"blocks.{i}.", spec.width // block.heads
        q, k, v = np.split(norm(x, at + "norm1") @ w[at + "qkv.weight"].T + w[at + "qkv.bias"], 3, axis=1)
        mixed = np.zeros_like(x)
        for h, n in itertools.product(range(block.heads), range(spec.tokens)):
            part = slice(h * d, (h + 1) * d)
            scores = k[:, part] @ q[n, part] / np.sqrt(d)
            mixed[n, part] = (
                run(site("softmax", i, (h, n)), "softmax", i, h, scores, spec.tokens) @ v[:, part]
            )
        x = x + (mixed @ w[at + "out.weight"].T + w[at + "out.bias"]) * w.get(at + "scale1", 1.0)
        hidden = norm(x, at + "norm2") @ w[at + "up.weight"].T + w[at + "up.bias"]
        for n, m in itertools.product(range(spec.tokens), range(block.mlp_width)):
            hidden[n, m] = run(site("gelu", i, (n, m)), "gelu", i, m, hidden[n, m], spec.gelu)
        x = x + (hidden @ w[at + "down.weight"].T + w[at + "down.bias"]) * w.get(at + "scale2", 1.0)
    read = x[0] if spec.pooling == "cls" else x[int(spec.class_token) :]
    if spec.final_norm == "after_pool" and spec.pooling == "mean":
        read = read.mean(0)
    read = norm(read, "norm")
    return (read if read.ndim == 1 else read.mean(0)) @ w["head.weight"].T + w["head.bias"]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("stand_ins", [("identity", "squared_attn"), ("quadratic", "quadratic_attn")])
def test_a_frozen_student_is_the_network_that_its_plan_describes(
    spec: Spec, stand_ins: tuple[str, str]
) -> None:
    stand_in = dict(zip(PAPER_KINDS, stand_ins, strict=True))
    student = make_student(spec, stand_in=stand_in)
    student.set_plan(random_plan(spec, 0.5, 0.5, stand_in=stand_in))
    image = make_images(spec, 1)
    weights = {name: p.detach().numpy() for name, p in student.named_parameters()}
    expected = plainly(spec, weights, student.plan(), image[0].numpy())
    np.testing.assert_allclose(student(image)[0].detach().numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=lambda g: f"{g.gelu}-{g.softmax}")
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_all_switches_at_one_give_the_untouched_model(spec: Spec, granularity: Granularity) -> None:
    student, images = make_student(spec, granularity), make_images(spec)
    untouched = copy.deepcopy(student)
    untouched.set_plan(uniform_plan(spec, granularity=granularity))
    torch.testing.assert_close(student(images), untouched(images), atol=1e-10, rtol=0)


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=lambda g: f"{g.gelu}-{g.softmax}")
@pytest.mark.parametrize("stand_ins", [("identity", "squared_attn"), ("affine", "linear_attn")])
def test_freezing_switches_that_are_zero_or_one_changes_neither_logits_nor_gradients(
    granularity: Granularity, stand_ins: tuple[str, str]
) -> None:
    spec = SPECS["cls, layer scale, tanh"]
    student = make_student(spec, granularity, stand_in=dict(zip(PAPER_KINDS, stand_ins, strict=True)))
    for switch in (s for kind in PAPER_KINDS for s in student.switches(kind)):
        switch.data = (torch.rand_like(switch) > 0.5).double()
    frozen, images = copy.deepcopy(student), make_images(spec)
    frozen.set_plan(student.plan())
    for model in (student, frozen):
        model(images).square().sum().backward()
    torch.testing.assert_close(frozen(images), student(images), atol=1e-10, rtol=0)
    for name, parameter in frozen.named_parameters():
        torch.testing.assert_close(parameter.grad, student.get_parameter(name).grad, atol=1e-8, rtol=1e-6)


def test_names_in_the_state_are_the_canonical_names() -> None:
    spec = SPECS["cls, layer scale, tanh"]
    student = Student(spec, stand_in={"gelu": "quadratic"})
    switches = {f"blocks.{i}.{kind}.switch" for i in range(spec.depth) for kind in PAPER_KINDS}
    fitted = {f"blocks.{i}.gelu.quadratic.{q}" for i in range(spec.depth) for q in ("q2", "q1", "q0")}
    assert set(student.state_dict()) == set(weight_shapes(spec)) | switches | fitted
    plan = random_plan(spec, 0.3, 0.3, stand_in={"gelu": "affine"})
    student.set_plan(plan)
    assert {n: w.shape for n, w in student.weights().items()} == all_weight_shapes(spec, plan)
    assert set(student.state_dict()) == set(all_weight_shapes(spec, plan))


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=lambda g: f"{g.gelu}-{g.softmax}")
def test_switches_have_the_shapes_of_the_sites_and_start_at_one(granularity: Granularity) -> None:
    student = Student(SPECS["cls"], granularity)
    for kind in PAPER_KINDS:
        assert [tuple(s.shape) for s in student.switches(kind)] == sites(SPECS["cls"], granularity)[kind]
        assert all((s == 1).all() for s in student.switches(kind))


def test_one_kind_can_be_frozen_while_the_other_is_searched() -> None:
    student, images = make_student(SPECS["cls"]), make_images(SPECS["cls"])
    kept = keep_ranked([s.detach().numpy() for s in student.switches("gelu")], 3)
    student.freeze("gelu", student.ids_where("gelu", kept))
    assert student.frozen("gelu")
    assert not student.frozen("softmax")
    assert student.switches("gelu") == []
    student(images).sum().backward()
    assert all(s.grad is not None for s in student.switches("softmax"))
    assert sum(student.plan().kept("gelu")) == 3


def test_the_plan_as_cut_keeps_what_is_above_the_threshold() -> None:
    student = Student(SPECS["cls"])
    student.switches("gelu")[0].data[:2] = torch.tensor([0.0, 0.4])
    total = SPECS["cls"].tokens
    assert student.plan(0.001).kept("gelu") == [total - 1, total]
    assert student.plan(0.5).kept("gelu") == [total - 2, total]


def test_relu_can_stand_for_the_kept_gelus_before_the_search_or_after_it() -> None:
    spec = SPECS["cls"]
    before = make_student(spec, exact={"gelu": "relu"})
    after = make_student(spec)
    plan = random_plan(spec, 0.4, 0.4)
    after.set_plan(swap_operator(plan, "gelu", "relu"))
    before.freeze("gelu", before.ids_where("gelu", [ids == 0 for ids in plan.layers["gelu"]]))
    before.freeze("softmax", list(plan.layers["softmax"]))
    assert before.plan().hash() == after.plan().hash()
    assert before.plan().kept("gelu") == plan.kept("gelu")
    torch.testing.assert_close(before(make_images(spec)), after(make_images(spec)))


def test_weights_survive_the_way_out_and_back_in() -> None:
    spec = SPECS["mean before norm"]
    student = make_student(spec).float()
    student.set_plan(random_plan(spec, 0.5, 0.5, stand_in={"gelu": "quadratic"}))
    again = Student(spec)
    again.set_plan(student.plan())
    again.load_weights(student.weights())
    images = make_images(spec).float()
    assert torch.equal(again(images), student(images))


def test_operator_parameters_that_the_weights_lack_start_at_their_initial_values() -> None:
    spec = SPECS["cls"]
    student = Student(spec, stand_in={"softmax": "quadratic_attn"})
    student.load_weights(Student(spec).weights())
    torch.testing.assert_close(
        student.get_parameter("blocks.0.softmax.quadratic_attn.c2").detach(),
        torch.full((spec.blocks[0].heads,), 0.5 / spec.tokens),
    )


def test_weights_of_another_model_are_refused_by_name() -> None:
    weights = Student(SPECS["cls"]).weights()
    del weights["head.bias"]
    weights["extra"] = np.zeros(1)
    weights["norm.bias"] = np.zeros(3)
    with pytest.raises(ArtifactError) as caught:
        Student(SPECS["cls"]).load_weights(weights)
    for part in ("missing ['head.bias']", "unexpected ['extra']", "of another shape ['norm.bias']"):
        assert part in caught.value.message


def test_a_plan_of_another_model_or_granularity_is_refused() -> None:
    student = Student(SPECS["cls"])
    with pytest.raises(ArtifactError, match="make the student with the plan's granularity"):
        student.set_plan(uniform_plan(SPECS["cls"], granularity=Granularity("layer", "row")))
    with pytest.raises(ArtifactError, match="the model's sites have"):
        student.set_plan(uniform_plan(replace(SPECS["cls"], image_size=16)))
    assert not student.frozen("gelu")


def test_a_search_step_runs_under_autocast() -> None:
    spec = SPECS["cls"]
    student, images = make_student(spec).float(), make_images(spec).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = student(images)
    logits.float().sum().backward()
    torch.testing.assert_close(logits.float(), student(images), atol=0.5, rtol=0.1)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in student.parameters())


def python_calls(work: Callable[[], object]) -> int:
    """How many Python functions `work` calls."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_no_python_loop_runs_over_sites() -> None:
    counts = []
    for mlp_width in (16, 4096):
        spec = vit_spec(8, 4, 16, 2, 2, 3, channels=1, mlp_width=mlp_width)
        student = Student(spec, Granularity("element", "row"))
        images = make_images(spec).float()

        def work(student: Student = student, images: torch.Tensor = images) -> None:
            for kind in PAPER_KINDS:
                values = [s.detach().numpy() for s in student.switches(kind)]
                kept = keep_ranked(values, sum(v.size for v in values) // 10)
                student.freeze(kind, student.ids_where(kind, kept))
            student(images).sum().backward()
            student.plan().hash()

        work_once = python_calls(work)
        assert student.plan().total("gelu") == 2 * spec.tokens * mlp_width
        counts.append(work_once)
    assert counts[0] == counts[1]

"""The optimizer: which parameters learn at which rate."""

from __future__ import annotations

from privit.config import FinetuneConfig, SearchConfig, from_json, to_json
from privit.plan import uniform_plan
from privit.spec import vit_spec
from privit.train.loop.optimize import is_coefficient, make_optimizer
from privit.train.student.vit import Student

SPEC = vit_spec(8, 4, 16, 2, 2, 3, channels=1)


def fitted_student() -> Student:
    student = Student(SPEC)
    student.set_plan(uniform_plan(SPEC, "quadratic", "quadratic_attn", norm="reused_norm"))
    return student


def rates(config: FinetuneConfig) -> dict[str, float]:
    groups = make_optimizer(fitted_student(), config, None).param_groups
    return {name: group["base"] for group in groups for name in group["param_names"]}


def test_operators_may_learn_more_slowly_than_weights() -> None:
    found = rates(FinetuneConfig(learning_rate=1e-3, operator_rate=0.1))
    assert set(found) == {name for name, _ in fitted_student().named_parameters()}
    slow = {name for name, rate in found.items() if rate == 1e-4}
    assert "blocks.0.gelu.quadratic.q2" in slow
    assert "blocks.1.softmax.quadratic_attn.c2" in slow
    assert "blocks.1.norm.reused_norm.s" in slow
    assert found["blocks.1.norm1.weight"] == found["norm.weight"] == found["blocks.0.qkv.weight"] == 1e-3


def test_unless_told_otherwise_everything_learns_at_one_rate() -> None:
    assert set(rates(FinetuneConfig(learning_rate=1e-3)).values()) == {1e-3}


def test_a_rate_as_usual_is_written_as_before_there_was_one() -> None:
    assert "operator_rate" not in to_json(FinetuneConfig())
    assert "operator_rate" not in to_json(SearchConfig())
    slow = FinetuneConfig(operator_rate=0.1)
    assert from_json(FinetuneConfig, to_json(slow)) == slow
    assert FinetuneConfig(operator_rate=-1).problems() == ["operator_rate is -1, below zero"]


def test_static_attention_learns_as_fast_as_weights() -> None:
    student = Student(SPEC)
    student.set_plan(uniform_plan(SPEC, "quadratic", "static_attn"))
    groups = make_optimizer(student, FinetuneConfig(learning_rate=1e-3, operator_rate=0.1), None).param_groups
    found = {name: group["base"] for group in groups for name in group["param_names"]}
    assert found["blocks.0.softmax.static_attn.w"] == 1e-3
    assert found["blocks.0.gelu.quadratic.q2"] == 1e-4
    assert not is_coefficient("blocks.0.softmax.static_attn.w")
    assert not is_coefficient("blocks.0.qkv.weight")
    assert is_coefficient("blocks.1.norm.reused_norm.s")

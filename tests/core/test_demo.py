"""What the demo says at its end."""

from __future__ import annotations

from typing import Any

import pytest

from privit.demo import gained, show_demo


def model(name: str, sent_bytes: float, rounds: int) -> dict[str, Any]:
    return {
        "model": name,
        "accuracy": 0.975,
        "predicted": {"sent_bytes": sent_bytes, "rounds": rounds, "seconds": 4.0},
    }


MODELS = [model("teacher", 80e6, 3000), model("PriViT", 40e6, 1500), model("best", 16e6, 500)]


def test_what_was_gained_is_said_against_the_teacher_and_against_privit() -> None:
    said = gained(MODELS)
    assert "5.0 times fewer bytes and 6.0 times fewer rounds than the teacher as commonly written" in said
    assert "2.5 times fewer bytes and 3.0 times fewer rounds than PriViT as published" in said


def test_a_person_sees_every_model_and_every_answer(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"image": "x/digit-0.png", "class_name": "5", "sent_bytes": 16e6, "seconds": 4.0}
    private = {
        "predictions": [answer],
        "labels": ["5"],
        "in_the_clear": ["5"],
        "private": True,
        "protocol": "cheetah",
    }
    show_demo({"models": MODELS, "private": private, "report": None})
    said = capsys.readouterr()
    assert all(
        name in said.out for name in ("teacher", "PriViT", "best", "97.50 %", "digit-0.png", "16.0 MB")
    )
    assert "times fewer rounds" in said.err
    assert "the server never saw the images" in said.err

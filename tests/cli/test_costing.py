"""`privit cost --batch`: a query of several images, priced from the same list of operations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from privit.cli import main

MODEL = ["cost", "--model", "deit_tiny_patch16_224", "--image-size", "112"]


def priced(batch: int, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    spu = ["--profile", "spu", "--protocol", "semi2k-benchmark", "--network", "wan", "--json"]
    assert main([*MODEL, *spu, "--batch", str(batch)]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_images_of_a_batch_share_rounds_and_weights(capsys: pytest.CaptureFixture[str]) -> None:
    one, eight = priced(1, capsys), priced(8, capsys)
    assert (one["batch"], eight["batch"]) == (1, 8)
    assert eight["rounds"] == one["rounds"]
    assert one["sent_bytes"] < eight["sent_bytes"] < 8 * one["sent_bytes"]
    assert eight["seconds"] < 8 * one["seconds"]


def test_gates_are_counted_for_one_image(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MODEL, "--batch", "8"]) == 2
    assert "--batch belongs to --profile spu" in capsys.readouterr().err

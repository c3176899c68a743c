"""Evaluation between real processes, which goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privit.errors import RequestError
from privit.serve.measure.private import evaluate_private


def test_an_evaluation_agrees_with_the_clear_and_is_not_repeated(tiny_folder: Path, tmp_path: Path) -> None:
    record, seen = tmp_path / "record.jsonl", []
    first = evaluate_private(
        tiny_folder, images=2, progress=lambda done, total: seen.append((done, total)), record=record
    )
    assert seen == [(1, 2), (2, 2)]
    assert first["agreement"] == 1.0
    assert first["max_logit_error"] <= 0.05
    assert (first["protocol"], first["private"], first["measured_on"]) == ("cheetah", True, "processes")
    assert 0 < first["rounds"] < first["setup_rounds"]
    # An interruption leaves half a line; what was finished is not asked again.
    record.write_text(record.read_text() + '{"image": 2, "lab')
    again = evaluate_private(tiny_folder, images=2, record=record)
    assert again == first
    rows = [json.loads(line) for line in record.read_text().splitlines()[:2]]
    assert [row["image"] for row in rows] == [0, 1]


def test_a_benchmark_protocol_is_refused_for_private_evaluation(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="semi2k-benchmark"):
        evaluate_private(tmp_path / "missing", protocol="semi2k-benchmark")

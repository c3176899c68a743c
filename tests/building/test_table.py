"""The table at the end of a build, for people."""

from __future__ import annotations

from pathlib import Path

from privit.building.request import Request
from privit.building.table import COLUMNS, Row, report

ROW = Row(
    "student",
    0.9721,
    0.9861,
    {"sent_bytes": 18_187_374, "rounds": 1633, "seconds": 3.8165},
    {"sent_bytes": 18_000_000, "rounds": 1600},
)


def test_what_was_not_measured_is_left_empty() -> None:
    cells = ROW.cells()
    assert len(cells) == len(COLUMNS)
    assert cells[:3] == ("student", "97.21 %", "98.61 %")
    assert cells[3:] == ("18.2 MB", "18.0 MB", "1,633", "1,600", "3.82 s", "")


def test_a_report_has_the_models_the_tries_and_what_the_export_said() -> None:
    request = Request("vit:width=8", "digits", Path("out"), {}, max_loss=1.0)
    tries = (
        {
            "budget": "seconds-4",
            "predicted_seconds": 3.9,
            "points_below_fitted": 2.5,
            "points_below": 0.75,
        },
    )
    text = report("a model on digits", request, [ROW], tries, {"a logit may be off by": "0.02"})
    assert text.startswith("# a model on digits\n")
    assert "| student | 97.21 % |" in text
    assert "| seconds-4 | 3.9 s | 2.50 | 0.75 |" in text
    assert text.endswith("- a logit may be off by: 0.02\n")

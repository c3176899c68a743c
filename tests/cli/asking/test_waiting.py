"""The bar and the lines of a query: what is said where there is no terminal, and how names are shortened."""

from __future__ import annotations

import pytest

from privit.cli.asking import waiting
from privit.cli.asking.waiting import LABEL_LENGTH, Waiting, shortened, told
from privit.cost.progress import Expected, Forecast, Progress
from privit.serve.parties.client import Cost, Prediction

AHEAD = Forecast(Expected(2e6, 40), Expected(10e6, 200, 30.0))


def prediction() -> Prediction:
    """An answer that cost as much as predicted."""
    return Prediction("cat", (1.0,), (0.0,), 10_000_000, 200, 12_000_000, 30.0)


def test_progress_is_told_in_bytes_rounds_and_seconds() -> None:
    half = Progress(5e6, 100, 12.0, AHEAD.query)
    assert told(half) == "5.0 MB of 10.0 MB, 100 of 200 rounds, 12 s left"
    assert told(Progress(1e6, 20, 9.0, AHEAD.setup)) == "1.0 MB of 2.0 MB, 20 of 40 rounds"
    assert told(Progress(1e6, 1200, 9.0)) == "1.0 MB, 1,200 rounds"


def test_a_long_name_keeps_its_end() -> None:
    name = "a/very/long/folder/that/says/nothing/IMG_20260102_0001.png"
    assert shortened(name).endswith("IMG_20260102_0001.png")
    assert len(shortened(name)) == LABEL_LENGTH
    assert shortened("cat.png") == "cat.png"


def test_elsewhere_than_on_a_terminal_lines_tell_how_far_all_images_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LINE_SECONDS", 0.0)
    with Waiting(AHEAD, 2) as shown:
        shown.moved("setup", Cost(1_000_000, 20, 0, 1.0))
        for name in ("a.png", "b.png"):
            shown.next(name)
            shown.moved("query", Cost(5_000_000, 100, 0, 15.0))
            shown.answered(prediction(), "cat (99.00 %)")
    assert capsys.readouterr().err.splitlines() == [
        "opening the session: 1.0 MB of 2.0 MB, 20 of 40 rounds",
        "a.png (1 of 2): computing privately ...",
        "a.png (1 of 2): 5.0 MB of 20.0 MB, 100 of 400 rounds, 45 s left",
        "a.png (1 of 2): cat (99.00 %)",
        "b.png (2 of 2): computing privately ...",
        "b.png (2 of 2): 15.0 MB of 20.0 MB, 300 of 400 rounds, 15 s left",
        "b.png (2 of 2): cat (99.00 %)",
    ]


def test_quiet_says_nothing_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    with Waiting(AHEAD, 1, quiet=True) as shown:
        shown.say("in line at 2")
        shown.next("a.png")
        shown.moved("query", Cost(5_000_000, 100, 0, 15.0))
        shown.answered(prediction(), "cat")
    assert capsys.readouterr() == ("", "")

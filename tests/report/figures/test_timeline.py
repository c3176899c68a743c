"""The time line: layers one after the other, as long as they took."""

from __future__ import annotations

from privit.report.figures.style import png
from privit.report.figures.timeline import OTHER, SHOWN, draw_timeline

OPERATIONS = {f"op{i}": {"seconds": 0.1 * i} for i in range(1, SHOWN + 3)}


def layer(name: str, seconds: float, *computing: float) -> dict[str, object]:
    names = ("server", "client", "helper")
    parties = [{"name": n, "computing_seconds": c} for n, c in zip(names, computing, strict=False)]
    return {"name": name, "seconds": seconds, "parties": parties, "operations": OPERATIONS}


RESULT = {
    "protocol": "aby3",
    "measured_on": "simulated",
    "layers": [layer("embedding", 4.0, 3.0, 1.0, 0.5), layer("layer 0", 5.0, 1.0, 2.0, 0.5)],
}


def test_every_party_and_the_operations_have_a_row_as_long_as_the_query() -> None:
    (axes,) = draw_timeline(RESULT).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "server",
        "client",
        "helper",
        "operations",
    ]
    assert axes.get_xlim() == (0.0, 9.0)
    server = [bar for bar in axes.patches if bar.get_y() < 0 and bar.get_width() > 0]
    assert [(bar.get_x(), bar.get_width()) for bar in server] == [(0, 3), (3, 1), (4, 1), (5, 4)]


def test_what_takes_least_stands_together_under_one_name() -> None:
    figure = draw_timeline(RESULT)
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named[:2] == ["computing", "waiting"]
    assert set(named[2:]) == {f"op{i}" for i in range(3, SHOWN + 3)} | {OTHER}
    assert png(figure).startswith(b"\x89PNG")

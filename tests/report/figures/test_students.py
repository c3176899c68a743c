"""The picture of students: every model has a letter, and letters do not run into each other."""

from __future__ import annotations

import math

from matplotlib.text import Annotation

from privit.report.figures.students import AWAY, draw_students, letters
from privit.report.read.cells import Cell, Point, Subject

MODELS = [
    (91.8, 160e6, 2530),
    (91.0, 125e6, 2450),
    (90.4, 105e6, 2390),
    (90.1, 80e6, 1457),
    (89.9, 76e6, 1318),
]


def point(name: str, accuracy: float, sent_bytes: float, rounds: float) -> Point:
    costs = {"sent_bytes": sent_bytes, "rounds": rounds}
    subject = Subject("digits", "small")
    cell = Cell("a", name, name, "10", 0, subject, accuracy / 100, costs=costs, student_label=f"the {name}")
    return Point((cell,))


def test_there_are_letters_for_any_number_of_models() -> None:
    assert letters(28)[24:] == ["y", "z", "aa", "ab"]


def test_every_letter_is_told_apart_from_every_other_and_named_below() -> None:
    figure = draw_students([point(f"m{i}", *m) for i, m in enumerate(MODELS)], ["sent_bytes", "rounds"], "a")
    figure.draw_without_rendering()
    for panel in figure.axes:
        found = [child for child in panel.get_children() if isinstance(child, Annotation)]
        assert [text.get_text() for text in found] == list("abcde")
        scale = 72 / figure.dpi
        boxes = [text.get_window_extent() for text in found]
        middles = [(scale * (b.x0 + b.x1) / 2, scale * (b.y0 + b.y1) / 2) for b in boxes]
        apart = [math.dist(a, b) for i, a in enumerate(middles) for b in middles[:i]]
        assert min(apart) > 0.7 * AWAY
    (legend,) = figure.legends
    assert legend.get_texts()[3].get_text() == "d  the m3 (90.1 %)"

"""Tables as a reader sees them, and as a program does."""

from __future__ import annotations

import csv
import io

import pytest

from privit.report.read.cells import Spread
from privit.report.render.markdown import plain
from privit.report.show.tables import Column, Table, show


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.9694, "percent", "96.9 %"),
        (Spread(0.9694, 0.004, 3), "percent", "96.9 ± 0.4 %"),
        (Spread(0.9694, 0.0, 1), "percent", "96.9 %"),
        (-0.004, "points", "-0.4"),
        (780_669, "short", "781 K"),
        (Spread(1e6, 1e3, 3), "short", "1 M"),
        (Spread(1e6, 1e5, 3), "short", "1 M ± 100 K"),
        (999_900, "short", "1 M"),
        (1591, "count", "1,591"),
        (None, "percent", "–"),
        ("digits", "text", "digits"),
    ],
)
def test_values_read_as_their_unit_asks(value, unit, text):
    assert show(value, unit) == text


def test_a_csv_has_plain_numbers_and_three_columns_for_a_spread():
    columns = (Column("method"), Column("accuracy", "percent"))
    table = Table("t", "", columns, (("a, b", Spread(0.5, 0.1, 3)), ("c", None)))
    assert list(csv.reader(io.StringIO(table.to_csv()))) == [
        ["method", "accuracy", "accuracy deviation", "accuracy seeds"],
        ["a, b", "0.5", "0.1", "3"],
        ["c", "", "", ""],
    ]


def test_markdown_shows_marks_as_they_are():
    assert plain("a|b_c <i>\nd") == "a\\|b\\_c &lt;i&gt; d"

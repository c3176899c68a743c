"""Tables: values with units, shown the same way on the page, in Markdown and, as plain numbers, in CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privit.report.figures.style import short
from privit.report.read.cells import Spread

MISSING = "–"
SMALL = 0.01
"""Costs that vary by less over seeds are shown without their spread; CSV has it."""


@dataclass(frozen=True)
class Column:
    """A heading and how its values read.

    text; percent (a share of 1); points (a difference of shares, signed); count; short (781 K);
    times (1.50 x); plain.
    """

    name: str
    unit: str = "text"

    @property
    def numeric(self) -> bool:
        """Whether values stand on the right."""
        return self.unit != "text"


@dataclass(frozen=True)
class Table:
    """Rows of values; a value is text, a number, a `Spread` or None. `best` marks cells as (row, column)."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    only_published: bool = False
    best: frozenset[tuple[int, int]] = frozenset()

    def texts(self) -> list[list[str]]:
        """Every value as a reader sees it."""
        return [[show(v, c.unit) for v, c in zip(row, self.columns, strict=True)] for row in self.rows]

    def to_csv(self) -> str:
        """Plain numbers; a spread becomes three columns: mean, standard deviation, how many."""
        spreads = {i for row in self.rows for i, value in enumerate(row) if isinstance(value, Spread)}
        target = io.StringIO()
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(_headings(self.columns, spreads))
        for row in self.rows:
            writer.writerow(_plain(row, spreads))
        return target.getvalue()


def show(value: Any, unit: str) -> str:
    """One value as text."""
    if value is None:
        return MISSING
    if isinstance(value, Spread):
        return _show_spread(value, unit)
    if unit == "percent":
        return f"{100 * value:.1f} %"
    if unit == "points":
        return f"{100 * value:+.1f}"
    if unit == "short":
        return short(value)
    if unit == "times":
        return f"{value:.2f} x"
    if unit == "count":
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _show_spread(value: Spread, unit: str) -> str:
    mean = show(value.mean, unit).removesuffix(" %")
    ending = " %" if unit == "percent" else ""
    if value.count < 2:
        return mean + ending
    if unit in ("percent", "points"):
        return f"{mean} ± {100 * value.deviation:.1f}{ending}"
    if unit == "plain":
        return f"{value.mean:.3g} ± {value.deviation:.2g}"
    small = value.deviation < SMALL * abs(value.mean)
    return mean if small or not value.deviation else f"{mean} ± {show(value.deviation, unit)}"


def _headings(columns: Sequence[Column], spreads: set[int]) -> list[str]:
    names: list[str] = []
    for i, column in enumerate(columns):
        names.append(column.name)
        if i in spreads:
            names += [f"{column.name} deviation", f"{column.name} seeds"]
    return names


def _plain(row: Sequence[Any], spreads: set[int]) -> list[Any]:
    values: list[Any] = []
    for i, value in enumerate(row):
        if i not in spreads:
            values.append("" if value is None else value)
        elif isinstance(value, Spread):
            values += [value.mean, value.deviation, value.count]
        else:
            values += ["" if value is None else value, "", ""]
    return values

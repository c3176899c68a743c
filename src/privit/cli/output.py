"""How results and errors reach a terminal or a script."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

FILE_WIDTH = 4000
"""Characters that a line may have where nobody looks at it in a terminal."""


def show_json(result: Mapping[str, Any]) -> None:
    """Prints exactly one JSON object on stdout."""
    print(json.dumps(result, default=_plain, allow_nan=False))


def show_fields(title: str, fields: Mapping[str, Any]) -> None:
    """Prints a two-column table of names and values on stdout."""
    table = Table(title=_title(title), title_justify="left", show_header=False, box=None, pad_edge=False)
    for name, value in fields.items():
        table.add_row(Text(name), Text(_text(value)))
    _console().print(table)


def show_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Prints rows as CSV on stdout, names of columns first."""
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def show_rows(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Prints a table on stdout."""
    table = Table(title=_title(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        # The first column names things: a name that is too long goes on in the next line and is never cut.
        table.add_column(
            Text(column), justify="left" if i == 0 else "right", overflow="fold" if i == 0 else "ellipsis"
        )
    for row in rows:
        table.add_row(*(Text(_text(value)) for value in row))
    _console().print(table)


def note(text: str) -> None:
    """A line of progress or advice on stderr."""
    print(text, file=sys.stderr, flush=True)


def counter(title: str) -> Callable[[int, int], None]:
    """Progress through a known number of images: a bar on a terminal, a line each elsewhere."""
    if not sys.stderr.isatty():
        return lambda done, total: note(f"{title}: {done} of {total}")
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(TextColumn(title), BarColumn(), MofNCompleteColumn(), console=Console(stderr=True))
    task = bar.add_task(title, total=None)

    def step(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)
        if done >= total:
            bar.stop()

    return step


def error_line(message: str, hint: str = "") -> None:
    """The error a user sees: what was found, and what to do."""
    note(f"error: {message}")
    if hint:
        note(f"hint: {hint}")


def megabytes(count: float) -> str:
    """Bytes as MB (10^6), with a precision that suits their size."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def percent(share: float) -> str:
    """A share of 1 as per cent."""
    return f"{100 * share:.2f} %"


def _console() -> Console:
    # A pipe or a file has no width: a table there is as wide as what is in it.
    wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(soft_wrap=True, width=FILE_WIDTH if wide else None)


def _title(text: str) -> Text:
    # A string would be read as rich's markup: [x] in a file's or class's name is eaten, [/x] is an error.
    return Text(text, style="table.title")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return " ".join(_text(v) for v in value)
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)

"""What a user sees while private queries run: one bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from privit.cli.output import megabytes, note
from privit.cost.progress import Expected, Forecast, Progress

if TYPE_CHECKING:
    from privit.serve.parties.client import Cost, Prediction

LINE_SECONDS = 5.0
"""How often a line is written where there is no terminal."""
LABEL_LENGTH = 32
SETUP = "opening the session"


class Waiting:
    """Progress of a session's set-up and of `count` queries on stderr; `quiet` shows nothing."""

    def __init__(self, ahead: Forecast, count: int, quiet: bool = False):
        self._ahead, self._count, self._quiet = ahead, count, quiet
        self._done = Progress(0, 0, 0.0)
        self._answers = 0
        self._name = SETUP
        self._last_line = time.monotonic()
        self._bar: Bar | None = None
        if not quiet and sys.stderr.isatty():
            name = TextColumn("{task.fields[name]}", markup=False)
            words = TextColumn("{task.description}", markup=False)
            self._bar = Bar(name, BarColumn(24), words, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None, name=SETUP)

    def __enter__(self) -> Waiting:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Takes the bar away; safe to call twice."""
        if self._bar is not None:
            self._bar.stop()

    def next(self, name: str) -> None:
        """The next image is asked about."""
        which = f" ({self._answers + 1} of {self._count})" if self._count > 1 else ""
        self._name = shortened(name) + which
        self._last_line = time.monotonic()
        if self._bar is not None:
            self._bar.reset(self._task, description="", name=self._name)
        else:
            self.say(f"{name}{which}: computing privately ...")

    def answered(self, prediction: Prediction, words: str) -> None:
        """The image has its answer."""
        self._answers += 1
        self._done = self._with(prediction)
        if self._bar is None and self._count > 1:
            self.say(f"{self._name}: {words}")

    def moved(self, work: str, cost: Cost) -> None:
        """How far the set-up or the running query is; called on the session's thread."""
        if work == "setup":
            self._show(Progress(cost.sent_bytes, cost.rounds, cost.seconds, self._ahead.setup))
        else:
            self._show(self._with(cost))

    def say(self, text: str) -> None:
        """A line of its own."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(Text(text), soft_wrap=True)
        else:
            note(text)

    def _with(self, cost: Cost | Prediction) -> Progress:
        """All queries so far as one piece of work."""
        expected: Expected | None = self._ahead.query and self._ahead.query.times(self._count)
        done = self._done
        return Progress(
            done.sent_bytes + cost.sent_bytes,
            done.rounds + cost.rounds,
            done.seconds + cost.seconds,
            expected,
        )

    def _show(self, progress: Progress) -> None:
        if self._bar is not None:
            total = None if progress.share is None else 1.0
            self._bar.update(
                self._task, completed=progress.share or 0, total=total, description=told(progress)
            )
        elif time.monotonic() >= self._last_line + LINE_SECONDS:
            self._last_line = time.monotonic()
            self.say(f"{self._name}: {told(progress)}")


def told(progress: Progress) -> str:
    """Progress in words: "12.3 of 38.4 MB, 410 of 1,518 rounds, 8 s left"."""
    expected, left = progress.expected, progress.seconds_left
    if expected is None:
        return f"{megabytes(progress.sent_bytes)}, {progress.rounds:,.0f} rounds"
    words = f"{megabytes(progress.sent_bytes)} of {megabytes(expected.sent_bytes)}, "
    words += f"{progress.rounds:,.0f} of {expected.rounds:,.0f} rounds"
    return words if left is None else f"{words}, {left:.0f} s left"


def shortened(name: str) -> str:
    """A name for one line: where it is too long its end is kept, which tells files apart."""
    return name if len(name) <= LABEL_LENGTH else "…" + name[1 - LABEL_LENGTH :]

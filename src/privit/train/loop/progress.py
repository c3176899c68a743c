"""Progress on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text


class Report:
    """Shows how far a stage is; silent in every process but the first."""

    def __init__(self, stage: str, epochs: int, steps: int, enabled: bool):
        self.stage, self.epochs, self.steps, self.enabled = stage, epochs, steps, enabled
        self.bar: Progress | None = None
        if enabled and sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> Report:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task(self.stage, total=self.steps)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def step(self, epoch: int, done: int) -> None:
        """One optimizer step is done."""
        if self.bar is not None:
            description = f"{self.stage} epoch {epoch + 1} of at most {self.epochs}"
            self.bar.update(self.task, completed=done, description=description)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """One epoch is done: a line with its numbers."""
        shown = {
            k: v for k, v in record.items() if isinstance(v, (int, float)) and k not in ("epoch", "seconds")
        }
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in shown.items())
        self.line(
            f"{self.stage} epoch {record['epoch']}/{self.epochs}  {numbers}  ({record['seconds']:.1f} s)"
        )

    def line(self, text: str) -> None:
        """A line of its own."""
        if not self.enabled:
            return
        if self.bar is not None:
            self.bar.console.print(Text(text), soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

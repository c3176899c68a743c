"""Every error a user can meet.

PrivitError                  something to tell the user; no traceback is shown
├── RequestError             the request was wrong (exit 2)
│   ├── ModelRefused         a model that does not fit the student
│   ├── BudgetError          a budget that cannot be met
│   ├── ArtifactError        an artifact that is damaged, edited or too new
│   ├── MissingExtra         an optional part is not installed
│   └── HandshakeError       server and client do not describe the same program
└── WorkError                the request was fine, the work failed (exit 1)
    ├── TrainingDiverged     the loss became NaN or infinite
    ├── ConnectionFailed     the other party went away or never answered
    └── OutsideRanges        an answer not to rely on: the image left the model's ranges (exit 3)
"""

from __future__ import annotations

from collections.abc import Callable


class PrivitError(Exception):
    """What was found and what was expected, with a hint on what to do."""

    exit_code = 1

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class RequestError(PrivitError):
    """The request was wrong; nothing was started."""

    exit_code = 2


class ModelRefused(RequestError):
    """A model that the student cannot represent, with the reason."""


class BudgetError(RequestError):
    """A budget that is negative, not a number or larger than what there is."""


class ArtifactError(RequestError):
    """An artifact that is missing, truncated, edited or of a newer format."""


class MissingExtra(RequestError):
    """An optional part of privit is not installed."""

    def __init__(self, module: str, extra: str):
        super().__init__(
            f"{module} is not installed, and this command needs it",
            f"pip install 'privit[{extra}]'",
        )


class HandshakeError(RequestError):
    """The two parties do not describe the same program."""


class WorkError(PrivitError):
    """The request was fine, but the work failed."""

    exit_code = 1


class TrainingDiverged(WorkError):
    """The loss became NaN or infinite; the last good checkpoint is kept."""


class ConnectionFailed(WorkError):
    """The other party went away, refused or did not answer in time."""


class OutsideRanges(WorkError):
    """An answer that cannot be right, because values left the ranges that the export measured."""

    exit_code = 3


def config_error(problems: list[str]) -> RequestError:
    """One error that lists every problem found in a configuration."""
    lines = "\n".join(f"  - {problem}" for problem in problems)
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return RequestError(f"the configuration has {count}:\n{lines}", "change these settings and start again")


def refusals(check: Callable[[], object]) -> list[str]:
    """What a check refuses, in a sentence; nothing if it passes."""
    try:
        check()
    except PrivitError as error:
        return [error.message]
    return []

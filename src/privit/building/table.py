"""What a build ended with: the teacher as commonly written, rewritten, and the student, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privit.artifact import Artifact
from privit.building.check import Whole
from privit.building.request import Request
from privit.cost.estimate import estimate
from privit.plan import Plan, uniform_plan

COLUMNS = (
    "model",
    "accuracy",
    "validation",
    "sent, predicted",
    "measured",
    "rounds, predicted",
    "measured",
    "seconds, predicted",
    "measured",
)


@dataclass(frozen=True)
class Row:
    """A model's accuracy and what a prediction costs; `measured` lacks what was not measured."""

    model: str
    accuracy: float
    validation_accuracy: float
    predicted: dict[str, float]
    measured: dict[str, Any]

    def cells(self) -> tuple[str, ...]:
        """The row as it is read, under COLUMNS."""
        figures = [
            show(figure[name]) if name in figure else ""
            for name, show in (("sent_bytes", _megabytes), ("rounds", _count), ("seconds", _seconds))
            for figure in (self.predicted, self.measured)
        ]
        return (self.model, _percent(self.accuracy), _percent(self.validation_accuracy), *figures)


def rows_of(
    request: Request,
    whole: Whole,
    artifact: Artifact,
    results: tuple[Mapping[str, Any], Mapping[str, Any]],
    measured: Mapping[str, Any],
) -> list[Row]:
    """The three rows; `results` are the teacher's and the student's runs', `measured` what `check` gave."""
    exact = uniform_plan(whole.spec)
    teacher, student = results
    of_teacher = {"ranges": whole.public.ranges}
    of_student = {"ranges": artifact.public.ranges, "guard": artifact.public.guard}
    made = (
        ("teacher, as commonly written", teacher, exact, of_teacher | {"rewrites": "dense"}, "written"),
        ("teacher, rewritten", teacher, exact, of_teacher, "rewritten"),
        ("student", student, artifact.plan, of_student, "student"),
    )
    return [
        Row(
            name,
            float(result["accuracy"]),
            float(result["validation_accuracy"]),
            _predicted(request, artifact.spec if key == "student" else whole.spec, plan, options),
            dict(measured.get(key, {})),
        )
        for name, result, plan, options, key in made
    ]


def report(
    title: str, request: Request, rows: list[Row], tries: tuple[dict[str, Any], ...], said: Mapping[str, Any]
) -> str:
    """The short report in Markdown."""
    lines = [f"# {title}", "", f"One prediction on {request.protocol}, over {request.network}.", ""]
    lines += _table(COLUMNS, [row.cells() for row in rows])
    if tries:
        shown = [
            (
                entry["budget"],
                f"{entry['predicted_seconds']:.3g} s",
                f"{entry['points_below_fitted']:.2f}",
                f"{entry['points_below']:.2f}",
            )
            for entry in tries
        ]
        columns = ("plan", "predicted", "points below the teacher, fitted", "fine-tuned")
        lines += ["", "Plans that were tried, on validation images:", "", *_table(columns, shown)]
    lines += ["", *(f"- {name}: {value}" for name, value in said.items())]
    return "\n".join(lines) + "\n"


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (columns, ("---",) * len(columns), *rows)]


def _predicted(request: Request, spec: Any, plan: Plan, options: Mapping[str, Any]) -> dict[str, float]:
    found = estimate(spec, plan, "spu", protocol=request.protocol, network=request.network, **options)
    return {name: found[name] for name in ("sent_bytes", "rounds", "seconds")}


def _megabytes(value: float) -> str:
    return f"{value / 1e6:.1f} MB"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"

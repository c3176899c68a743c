"""A document from cells: a section per experiment, each with what it asks for and has the data for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from privit.report.compare.verdicts import in_brief
from privit.report.read.cells import Cells, Experiment
from privit.report.render.document import Document, Item, Section, Text, listed
from privit.report.show.budgets import show_budgets
from privit.report.show.fronts import (
    View,
    experiment_verdicts,
    show_front,
    show_gelu,
    show_seconds,
    show_softmax,
    show_table,
)
from privit.report.show.models import (
    show_breakdown,
    show_degradation,
    show_grid,
    show_layers,
    show_measured,
)
from privit.report.show.published import published_strategies
from privit.report.show.rounds import show_rounds
from privit.report.show.students import show_students
from privit.report.show.tables import Column, Table
from privit.sections import SECTIONS

SHOWN: dict[str, Callable[[View], Iterator[Item]]] = {
    "students": show_students,
    "front": show_front,
    "budgets": show_budgets,
    "softmax": show_softmax,
    "gelu": show_gelu,
    "grid": show_grid,
    "layers": show_layers,
    "rounds": show_rounds,
    "degradation": show_degradation,
    "breakdown": show_breakdown,
    "seconds": show_seconds,
    "table": show_table,
}
"""How each of SECTIONS is made of an experiment."""
ALONG_WITH = {
    "front": ("budgets", "rounds", "table"),
    "softmax": ("table",),
    "gelu": ("table",),
    "grid": ("table",),
}
"""Figures whose numbers a reader will want to look up."""
BEHIND = {False: ("PriViT", "another method"), True: ("a budget in cost", "one in sites")}
"""Who may be behind whom, by whether a comparison is with PriViT's own budgets in sites."""


def build(found: Cells, with_published: bool = True) -> Document:
    """The whole report."""
    views = [
        View(experiment, cells, experiment.protocol or found.protocol, with_published)
        for experiment in found.experiments
        if (cells := found.of(experiment))
    ]
    shown = [{name: tuple(SHOWN[name](view)) for name in wanted(view.experiment)} for view in views]
    sections = [
        Section(
            view.experiment.title, (*_opening(view), *(item for found in items.values() for item in found))
        )
        for view, items in zip(views, shown, strict=True)
    ]
    if found.measured:
        sections.append(Section("Predicted against measured", tuple(show_measured(found.measured))))
    empty = [
        f"{view.experiment.title}: {SECTIONS[name]}, because the runs hold no data for it."
        for view, items in zip(views, shown, strict=True)
        for name, made in items.items()
        if not made
    ]
    sections.append(Section("What is not here", tuple(_absent(found, empty))))
    sections.append(Section("How the runs were made", tuple(_settings(found, views))))
    matches = any(view.series(axis)[1] for view in views for axis in ("relu_ops", "seconds_lan"))
    return Document(
        f"privit report: {found.title}",
        tuple(_summary(found, views)),
        tuple(section for section in sections if section.items),
        matches,
    )


def wanted(experiment: Experiment) -> list[str]:
    """What an experiment shows, with what goes along with it, in order."""
    asked = set(experiment.shows)
    for show in experiment.shows:
        asked |= set(ALONG_WITH.get(show, ()))
    if not experiment.priced:
        asked.discard("budgets")
    return [name for name in SECTIONS if name in asked and name in SHOWN]


def _summary(found: Cells, views: list[View]) -> Iterator[Item]:
    methods = list(dict.fromkeys(cell.label for cell in found.cells))
    seeds = sorted({cell.seed for cell in found.cells})
    subjects = list(dict.fromkeys(str(cell.subject) for cell in found.cells))
    if found.cells:
        yield Text(
            (
                f"{len(found.cells)} models by {len(methods)} methods ({'; '.join(methods)}), "
                f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}. "
                + "; ".join(subjects)
                + ".",
            )
        )
    found_verdicts = [(view, own) for view in views if (own := experiment_verdicts(view))]
    for counted, (who, whom) in BEHIND.items():
        verdicts = [(view, [v for v in own if v.counted == counted]) for view, own in found_verdicts]
        behind = [f"{view.experiment.title}: {line}" for view, own in verdicts for line in in_brief(own)]
        if behind:
            yield Text((f"Where {who} is behind {whom}:",), "behind")
            yield listed(behind, "behind")
        elif any(own for _, own in verdicts):
            yield Text((f"Nowhere is {who} behind {whom} on every seed.",))
    yield Text(
        (
            "Accuracies are on the test set. Costs are estimated (privit cost) unless a table says measured; "
            f"bytes, rounds and seconds are those of one prediction after set-up under {found.protocol}.",
        ),
        "note",
    )


def _opening(view: View) -> Iterator[Item]:
    experiment = view.experiment
    about = [f"{label}: {text}" for label, text in experiment.methods.items() if text]
    if experiment.note:
        yield Text((experiment.note,))
    if view.priced:
        prices = dict.fromkeys(cell.allowance.price for cell in view.cells if cell.allowance)
        units = " and ".join(f"{p.unit.replace('_', ' ')} under {p.setting}" for p in prices)
        said = f"Budgets in cost are given in {units}; bytes, rounds and seconds here are of {view.protocol}."
        yield Text((said,), "note")
    if experiment.paper:
        yield Text((f"In the paper: {experiment.paper}.",), "note")
    if about:
        yield listed(about, "note", folded="The methods")
    yield from published_strategies(view)


def _absent(found: Cells, empty: list[str]) -> Iterator[Item]:
    unfinished = [e.title for e in found.experiments if not found.of(e)]
    lines = [*(f"{title}: no model is finished." for title in unfinished), *empty]
    if not found.measured:
        lines.append("Predicted against measured: nothing in these runs was measured.")
    if lines:
        yield listed(lines)
    if found.missing:
        rows = tuple((entry.name, entry.reason) for entry in found.missing)
        yield Table("missing", "Asked for and not there.", (Column("what"), Column("why")), rows)


def _settings(found: Cells, views: list[View]) -> Iterator[Item]:
    if found.facts:
        yield listed(f"{name}: {text}" for name, text in found.facts.items())
    shared: dict[tuple[tuple[str, str, str], ...], list[View]] = {}
    for view in views:
        shared.setdefault(_rows(view.experiment), []).append(view)
    for rows, same in shared.items():
        if rows:
            columns = (Column("stage"), Column("setting"), Column("value"))
            titles = "; ".join(view.experiment.title for view in same)
            caption = f"One set of hyperparameters for all methods. {titles}."
            yield Table(f"{same[0].slug}-settings", caption, columns, rows)
    warnings = [
        f"{cell.label}, {cell.budget}, seed {cell.seed}: {w}" for cell in found.cells for w in cell.warnings
    ]
    if warnings:
        yield Text(("Warnings of the runs:",), "note")
        yield listed(warnings, "note")


def _rows(experiment: Experiment) -> tuple[tuple[str, str, str], ...]:
    """Stage, name and value of every hyperparameter."""
    return tuple(
        (stage, name, str(value))
        for stage, settings in experiment.settings.items()
        if isinstance(settings, dict)
        for name, value in settings.items()
    )

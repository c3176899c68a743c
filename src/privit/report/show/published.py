"""The paper's own tables and figures, beside ours where an experiment repeats them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from privit.report.figures.grid import Grid, draw_grid
from privit.report.figures.layers import draw_layers
from privit.report.paper.published_tables import DEGRADATION, DISTRIBUTIONS, GRID, GRID_SOFTMAX, STRATEGIES
from privit.report.render.document import Item, Picture
from privit.report.show.fronts import View
from privit.report.show.tables import Column, Table

KINDS = ("gelu", "softmax")


def published_strategies(view: View) -> Iterator[Item]:
    """The paper's own table of its five strategies."""
    if not view.with_published or "finetuning" not in view.experiment.paper:
        return
    strategies = (Column(f"strategy {i}", "percent") for i in range(1, 6))
    columns = (Column("softmaxes (K)", "count"), Column("GELUs (K)", "count"), *strategies)
    rows = tuple((s, g, *(a if a is None else a / 100 for a in found)) for s, g, found in STRATEGIES)
    caption = "The paper's tab:finetuning (CIFAR-100)."
    yield Table(f"{view.slug}-paper-strategies", caption, columns, rows, only_published=True)


def published_layers(view: View) -> Iterator[Picture]:
    """What the paper's own models keep per layer, where the experiment is about that."""
    if not view.with_published or not view.experiment.paper:
        return
    found = [entry for entry in DISTRIBUTIONS if entry.label in view.experiment.paper]
    for kind in KINDS:
        own = {f"paper: {entry.name}": entry.kept for entry in found if entry.kind == kind}
        if own:
            units = {kind: next(entry.unit for entry in found if entry.kind == kind).removesuffix("s")}
            labels = ", ".join(dict.fromkeys(entry.label for entry in found if entry.kind == kind))
            yield Picture(
                f"{view.slug}-paper-{kind}",
                f"What the paper's models keep per layer, {kind}",
                f"The paper's {labels}.",
                draw_layers({kind: own}, units),
                only_published=True,
            )


def published_grid(view: View) -> Picture:
    """The paper's heat map."""
    # What the paper's red lines say: 0.051 thousand GELUs are worth one softmax.
    gelu, softmax = [1e3 * n for n in GRID], [float(n) for n in GRID_SOFTMAX]
    accuracy = np.array(list(GRID.values()))
    cost = 270 * (np.array(gelu)[:, None] + 51.0 * np.array(softmax)[None, :])
    grid = Grid(gelu, softmax, accuracy, np.zeros_like(accuracy), cost)
    return Picture(
        f"{view.slug}-paper-grid",
        "The paper's accuracy over GELU and softmax budgets",
        "The paper's fig:grid_search_privit (CIFAR-100). Lines: the slope of its own, 51 GELUs to a softmax.",
        draw_grid(grid, "relu_ops", "The paper's grid, CIFAR-100"),
        only_published=True,
    )


def published_degradation(view: View) -> Table:
    """The paper's table of what classes lose."""
    columns = (
        Column("accuracy", "percent"),
        Column("ReLUOps", "short"),
        Column("most lost by a class", "points"),
        Column("mean lost", "points"),
        Column("variance (10^-3)", "plain"),
    )
    rows = tuple((a / 100, 1e6 * cost, most / 100, mean / 100, v) for a, cost, most, mean, v in DEGRADATION)
    caption = "The paper's tab:perf degradation (Tiny-ImageNet, ViT-Tiny)."
    return Table(f"{view.slug}-paper-classes", caption, columns, rows, only_published=True)

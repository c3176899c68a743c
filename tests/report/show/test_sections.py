"""Which pictures, tables and sentences a report has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_files import write_line
from sweep_files import SweepFiles

from privit.report.figures.grid import Grid, draw_grid
from privit.report.figures.style import looks, png, settle, svg
from privit.report.read.gather import gather
from privit.report.read.gather_runs import SHOWS as RUN_SECTIONS
from privit.report.render.document import Document, Picture, Text
from privit.report.show.sections import SHOWN, build
from privit.report.show.tables import Table
from privit.sections import SECTIONS

FAST = "semi2k-benchmark"


@pytest.fixture(scope="module")
def document(full: Path) -> Document:
    """The report of a sweep with every kind of experiment."""
    return build(gather(full, FAST))


def pictures(document: Document) -> dict[str, Picture]:
    """By name."""
    return {item.name: item for item in document.items if isinstance(item, Picture)}


def tables(document: Document) -> dict[str, Table]:
    """By name."""
    return {item.name: item for item in document.items if isinstance(item, Table)}


def lines(document: Document) -> list[str]:
    """Everything it says."""
    return [line for item in document.items if isinstance(item, Text) for line in item.lines]


def test_every_figure_of_the_paper_has_its_picture(document):
    assert {
        "pareto-relu-ops",
        "pareto-sent-bytes",
        "pareto-rounds",
        "pareto-seconds-lan",
        "pareto-seconds-wan",
        "pareto-layers-1",
        "pareto-layer-rounds",
        "pareto-breakdown",
        "attention-kept-softmax-rows",
        "gelu-only-kept-gelu-elements",
        "grid-grid",
        "degradation-class-losses",
        "distribution-layers-1",
        "predicted",
    } <= pictures(document).keys()


def test_the_paper_s_points_lie_over_ours_and_its_tables_beside_ours(document):
    found = pictures(document)
    assert found["pareto-relu-ops"].overlaid is not None
    assert "another data set and model" in found["pareto-relu-ops"].overlay
    assert found["grid-paper-grid"].only_published
    assert found["distribution-paper-softmax"].only_published
    assert tables(document)["degradation-paper-classes"].only_published
    assert tables(document)["strategies-paper-strategies"].only_published
    assert not document.published_matches


def test_without_published_points_there_is_nothing_of_the_paper_s(tmp_path):
    files = SweepFiles(tmp_path)
    files.experiment("pareto", ["gelu", "degradation"], "fig:GELU_plot, tab:finetuning")
    files.cell("pareto", "privit-g", (4, 8), 0, 0.9)
    document = build(gather(files.finish(), FAST), with_published=False)
    assert len(pictures(document)) == 3
    assert all(item.overlaid is None and not item.only_published for item in pictures(document).values())
    assert not any(table.only_published for table in tables(document).values())


def test_pictures_and_tables_have_names_and_texts_of_their_own(document):
    items = [item for item in document.items if isinstance(item, (Picture, Table))]
    assert len({item.name for item in items}) == len(items)
    assert all(item.caption for item in items)
    assert all(len(item.alt) > 20 for item in items if isinstance(item, Picture))


def test_methods_at_equal_budgets_stand_side_by_side(document):
    table = tables(document)["strategies-budgets"]
    assert [column.name for column in table.columns] == ["budget", "strategy 1", "strategy 5"]
    assert table.texts()[0] == ["4-8", "91.2 ± 0.3 %", "92.2 ± 0.3 %"]
    assert table.best == {(0, 2), (1, 2), (2, 2)}


def test_what_classes_lose_is_the_maximum_the_mean_and_the_variance_over_classes(tmp_path):
    files = SweepFiles(tmp_path)
    files.experiment("degradation", ["degradation"])
    losses = {"per_class_accuracy": [0.9, 0.6, 0.9], "teacher_per_class_accuracy": [0.9, 0.9, 0.9]}
    files.cell("degradation", "privit-g", (4, 8), 0, 0.8, class_names=["a", "b", "c"], **losses)
    table = tables(build(gather(files.finish(), FAST)))["degradation-classes"]
    assert table.texts()[0][3:] == ["+30.0", "+10.0", "20", "b"]


def test_where_privit_is_behind_is_said_first(document):
    first = [line for item in document.summary if isinstance(item, Text) for line in item.lines]
    assert "Where PriViT is behind another method:" in first
    mpcvit = next(line for line in first if line.startswith("Pareto: behind MPCViT: "))
    assert "PriViT-G by ReLUOps at 1 of 2 points, by up to 2.0 percentage points" in mpcvit
    mpcformer = next(line for line in first if line.startswith("Pareto: behind MPCFormer: "))
    assert "PriViT-G by ReLUOps dearer than 1 of 1 point" in mpcformer
    assert any("PriViT-G against SNL by equal GELUs" in line for line in lines(document))


def test_every_comparison_is_a_row(document):
    rows = tables(document)["pareto-comparisons"].rows
    assert ("PriViT-G", "MPCViT", "ReLUOps", 2, 1, 0, 1, 0) in [row[:8] for row in rows]
    assert {row[1] for row in rows} == {"MPCViT", "SNL", "MPCFormer"}


def test_what_was_asked_for_and_is_not_there_is_said(tmp_path):
    files = SweepFiles(tmp_path)
    files.experiment("degradation", ["degradation", "grid"])
    files.experiment("kd", ["front"], title="Distillation")
    files.cell("degradation", "privit-g", (4, 8), 0, 0.9, per_class_accuracy=[], measured={})
    said = lines(build(gather(files.finish(), FAST)))
    assert "Degradation: what each class loses, because the runs hold no data for it." in said
    assert "Degradation: the grid of softmax and GELU budgets, because the runs hold no data for it." in said
    assert "Distillation: no model is finished." in said
    assert "Predicted against measured: nothing in these runs was measured." in said


def test_one_set_of_hyperparameters_is_stated(document):
    assert ("search", "learning_rate", "0.0005") in tables(document)["pareto-settings"].rows


def test_a_single_run_makes_a_report(tmp_path):
    write_line(tmp_path, 0, 0.95)
    found = pictures(build(gather(tmp_path, FAST)))
    assert "one seed, so no error bars" in found["digits-relu-ops"].caption


def test_the_same_figure_gives_the_same_bytes():
    accuracy = np.array([[90.0, 91.0], [92.0, 93.0]])
    grid = Grid([4.0, 8.0], [8.0, 16.0], accuracy, np.zeros_like(accuracy), 1e5 * accuracy)
    first, second = (draw_grid(grid, "relu_ops", "twice") for _ in range(2))
    for figure in (first, second):
        settle(figure)
    assert svg(first) == svg(second)
    assert png(first) == png(second)


def test_no_two_methods_look_alike():
    names = [
        "PriViT-G",
        "PriViT-R",
        "MPCViT",
        "MPCViT+",
        "SNL",
        "MPCFormer",
        "layer-wise",
        "random",
        "uniform",
    ]
    names += ["dense", "dense, rewritten", "another"]
    found = looks(names)
    assert len({look.colour for look in found.values()}) == len(names)
    assert len({look.hatch for look in found.values()}) == len(names)
    assert len({look.marker for look in found.values()}) == len(names)


def test_every_section_that_a_recipe_may_name_is_made_and_no_other():
    # What was measured is one section of the whole report.
    assert SHOWN.keys() | {"measured"} == SECTIONS.keys()
    assert set(RUN_SECTIONS) <= SECTIONS.keys()


def test_rounds_by_layer_are_shown_to_whoever_asks_for_them_alone(tmp_path):
    files = SweepFiles(tmp_path)
    files.experiment("alone", ["rounds"])
    files.cell("alone", "privit-g", (4, 8), 0, 0.9)
    (section, *_) = build(gather(files.finish(), FAST)).sections
    assert any(isinstance(item, Picture) and item.name == "alone-layer-rounds" for item in section.items)

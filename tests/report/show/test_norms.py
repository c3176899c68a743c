"""LayerNorms that are replaced and tokens that are pooled stand in the students' table and by layer."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_files import SPEC, SweepFiles

from privit.report.read.gather import gather
from privit.report.render.document import Document, Picture
from privit.report.show.sections import build
from privit.report.show.tables import Table

WHOLE = 2 * SPEC.depth + 1


def report_of(folder: Path, *changes: dict[str, object]) -> Document:
    """A report of one student for each of the changes."""
    files = SweepFiles(folder)
    files.experiment("norms", ["students", "layers"])
    for i, change in enumerate(changes):
        files.cell("norms", f"method-{i}", (4, 4), 0, 0.9, **change)
    return build(gather(files.finish(), "semi2k-benchmark"))


def reused(keeps: int) -> dict[str, object]:
    """What a cell says of LayerNorms: as many exact, from the first on."""
    kept = [min(2, max(0, keeps - 2 * layer)) for layer in range(SPEC.depth)]
    tokens = [SPEC.tokens] + [3] * (SPEC.depth - 1)
    gelu, softmax = [1] * SPEC.depth, [1] * SPEC.depth
    return {"kept": {"gelu": gelu, "softmax": softmax, "norm": kept}, "tokens": tokens}


@pytest.fixture
def document(tmp_path: Path) -> Document:
    return report_of(tmp_path, {}, reused(3))


def test_the_students_table_counts_norms_and_tokens(document: Document) -> None:
    (table,) = [t for t in document.items if isinstance(t, Table) and t.name == "norms-students"]
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    assert [row["exact LayerNorms"] for row in rows] == [f"{WHOLE}/{WHOLE}", f"3/{WHOLE}"]
    assert rows[1]["tokens"] == f"{SPEC.tokens} x 1, 3 x {SPEC.depth - 1}"


def test_the_layers_picture_has_a_panel_of_norms_and_one_of_tokens(document: Document) -> None:
    (picture,) = [p for p in document.items if isinstance(p, Picture) and "-layers-" in p.name]
    titles = [axes.get_title() or axes.get_title(loc="left") for axes in picture.figure.axes]
    assert sum(title.startswith("exact LayerNorms") for title in titles) == 1, titles
    assert titles.count("tokens") == 1, titles
    assert "norm: 2 1" in picture.alt


def test_without_such_students_nothing_is_said_of_norms(tmp_path: Path) -> None:
    document = report_of(tmp_path, {}, {})
    (table,) = [t for t in document.items if isinstance(t, Table) and t.name == "norms-students"]
    assert not {"exact LayerNorms", "tokens"} & {column.name for column in table.columns}
    (picture,) = [p for p in document.items if isinstance(p, Picture) and "-layers-" in p.name]
    assert len(picture.figure.axes) == 2

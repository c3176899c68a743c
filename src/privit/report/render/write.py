"""A folder with the report: page, Markdown, pictures, tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from privit.report.figures.style import png, settle, svg
from privit.report.read.gather import gather
from privit.report.render.document import Document, Picture
from privit.report.render.markdown import render_markdown
from privit.report.render.page import render_page
from privit.report.show.sections import build
from privit.report.show.tables import Table
from privit.runs import writing

PAGE, MARKDOWN, FIGURES, TABLES = "index.html", "report.md", "figures", "tables"


def write_report(
    runs: Path,
    out: Path | None = None,
    published: bool = True,
    protocol: str = "cheetah",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """What was written, from a sweep's folder or any folder of runs; by default into its report/ folder."""
    found = gather(runs, protocol)
    document = build(found, published)
    out = Path(out) if out is not None else Path(runs) / "report"
    drawn = _write_pictures(document, out / FIGURES, progress)
    tables = [item for item in document.items if isinstance(item, Table)]
    _folder(out / TABLES)
    for table in tables:
        _write(out / TABLES / f"{table.name}.csv", table.to_csv().encode())
    _write(out / MARKDOWN, render_markdown(document, FIGURES).encode())
    _write(out / PAGE, render_page(document, drawn.__getitem__).encode())
    return {
        "page": str(out / PAGE),
        "markdown": str(out / MARKDOWN),
        "models": len(found.cells),
        "missing": len(found.missing),
        "figures": len(drawn),
        "tables": len(tables),
    }


def _write_pictures(
    document: Document, folder: Path, progress: Callable[[int, int], None] | None
) -> dict[str, bytes]:
    """Name to SVG of every picture, each also written as PNG."""
    pictures = [item for item in document.items if isinstance(item, Picture)]
    figures = [(picture.name, picture.figure) for picture in pictures]
    figures += [(f"{p.name}-published", p.overlaid) for p in pictures if p.overlaid is not None]
    drawn: dict[str, bytes] = {}
    _folder(folder)
    for done, (name, figure) in enumerate(figures, 1):
        settle(figure)
        drawn[name] = svg(figure)
        _write(folder / f"{name}.svg", drawn[name])
        _write(folder / f"{name}.png", png(figure))
        if progress:
            progress(done, len(figures))
    return drawn


def _write(path: Path, data: bytes) -> None:
    """Writes a file that can be made again at any time: nobody waits for the disk."""
    with writing(path.parent):
        path.write_bytes(data)


def _folder(path: Path) -> None:
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)

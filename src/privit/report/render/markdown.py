"""The report as Markdown, with the pictures beside it."""

from __future__ import annotations

from collections.abc import Iterator

from privit.report.render.document import Document, Item, Picture, Text
from privit.report.show.tables import Table

_SPECIAL = str.maketrans(
    {c: f"\\{c}" for c in "\\`*_[]|#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}  # as HTML knows them
)


def render_markdown(document: Document, figures: str = "figures") -> str:
    """The whole text; pictures are PNG files below `figures`."""
    parts = [f"# {plain(document.title)}", *(_item(item, figures) for item in document.summary)]
    for section in document.sections:
        parts.append(f"## {plain(section.title)}")
        parts += [_item(item, figures) for item in section.items]
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Text that Markdown shows as it is, also where it holds marks or HTML."""
    return text.translate(_SPECIAL).replace("\n", " ")


def _item(item: Item, figures: str) -> str:
    if isinstance(item, Text):
        return _text(item)
    if isinstance(item, Picture):
        return "\n\n".join(_picture(item, figures))
    return _table(item)


def _text(text: Text) -> str:
    if text.listed:
        return "\n".join(f"- {plain(line)}" for line in text.lines)
    said = plain(" ".join(text.lines))
    return f"**{said}**" if text.tone == "behind" else said


def _picture(picture: Picture, figures: str) -> Iterator[str]:
    alt = plain(picture.alt)
    yield f"![{alt}]({figures}/{picture.name}.png)"
    yield f"*{plain(picture.caption)}*"
    if picture.overlaid is not None:
        yield f"![With the paper's points. {alt}]({figures}/{picture.name}-published.png)"
        yield f"*{plain(picture.overlay)}*"


def _table(table: Table) -> str:
    heads = [plain(column.name) for column in table.columns]
    rules = ["---:" if column.numeric else "---" for column in table.columns]
    rows = [
        [f"**{plain(text)}**" if (i, j) in table.best else plain(text) for j, text in enumerate(row)]
        for i, row in enumerate(table.texts())
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, rules, *rows)]
    return plain(table.caption) + "\n\n" + "\n".join(lines)

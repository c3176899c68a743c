"""The report as one HTML page: no script, no network, every picture inside."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from html import escape
from itertools import groupby

from privit.report.render.document import Document, Item, Picture, Section, Text
from privit.report.render.page_style import STYLE
from privit.report.show.tables import Table

# Even text that escaped escaping could load or run nothing.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
LONG_TABLE = 24
"""Longer tables are folded."""

Source = Callable[[str], bytes]
"""Gives a picture's SVG by its name."""


def render_page(document: Document, source: Source) -> str:
    """The whole page; the paper's points are switched by a checkbox and CSS alone."""
    body = "".join(
        [
            _switch_state(document),
            f"<header><h1>{escape(document.title)}</h1>",
            *(_item(item, source) for item in document.summary),
            "</header>",
            _contents(document),
            _switch(document),
            "<main>",
            *(_section(section, number, source) for number, section in enumerate(document.sections, 1)),
            "</main>",
            "<footer>Made by <code>privit report</code>. The same numbers are beside this page as CSV, "
            "the pictures as PNG and SVG.</footer>",
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(document.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def has_overlay(document: Document) -> bool:
    """Whether there is anything of the paper's to switch."""
    return any(
        item.only_published or (isinstance(item, Picture) and item.overlaid is not None)
        for item in document.items
        if isinstance(item, (Picture, Table))
    )


def _switch_state(document: Document) -> str:
    """The checkbox stands first, so that a style rule can reach everything after it."""
    if not has_overlay(document):
        return ""
    checked = " checked" if document.published_matches else ""
    return f'<input type="checkbox" id="published"{checked} aria-label="the paper\'s published points">'


def _switch(document: Document) -> str:
    if not has_overlay(document):
        return ""
    return (
        '<div class="bar"><label class="switch" for="published">The paper\'s published points</label></div>'
    )


def _contents(document: Document) -> str:
    links = "".join(
        f'<li><a href="#s{number}">{escape(section.title)}</a></li>'
        for number, section in enumerate(document.sections, 1)
    )
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def _section(section: Section, number: int, source: Source) -> str:
    parts = [f'<section><h2 id="s{number}">{escape(section.title)}</h2>']
    for pictures, group in groupby(section.items, lambda item: isinstance(item, Picture)):
        found = list(group)
        inner = "".join(_item(item, source) for item in found)
        parts.append(f'<div class="pictures">{inner}</div>' if pictures and len(found) > 1 else inner)
    return "".join([*parts, "</section>"])


def _item(item: Item, source: Source) -> str:
    if isinstance(item, Text):
        return _text(item)
    if isinstance(item, Picture):
        return "".join(_picture(item, source))
    return _table(item)


def _text(text: Text) -> str:
    tone = "" if text.tone == "plain" else f' class="{text.tone}"'
    if text.listed:
        shown = f"<ul{tone}>" + "".join(f"<li>{_prose(line)}</li>" for line in text.lines) + "</ul>"
        return _folded(text.folded, shown) if text.folded else shown
    return f"<p{tone}>{_prose(' '.join(text.lines))}</p>"


def _prose(text: str) -> str:
    """Escaped; a number and its per cent sign stay on one line."""
    return escape(text).replace(" %", "&nbsp;%")


def _picture(picture: Picture, source: Source) -> Iterator[str]:
    if picture.only_published:
        yield _figure(picture.name, picture.alt, picture.caption, source, "paper")
        return
    if picture.overlaid is None:
        yield _figure(picture.name, picture.alt, picture.caption, source)
        return
    yield _figure(picture.name, picture.alt, picture.caption, source, "ours")
    caption = f"{picture.caption} {picture.overlay}"
    alt = f"With the paper's published points. {picture.alt}"
    yield _figure(f"{picture.name}-published", alt, caption, source, "paper")


def _figure(name: str, alt: str, caption: str, source: Source, kind: str = "") -> str:
    data = base64.b64encode(source(name)).decode()
    shown = f' class="{kind}"' if kind else ""
    return (
        f'<figure{shown}><img src="data:image/svg+xml;base64,{data}" alt="{escape(alt)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    heads = "".join(_cell("th", column.name, column.numeric) for column in table.columns)
    rows = "".join(
        "<tr>"
        + "".join(
            _cell("td", text, table.columns[j].numeric, (i, j) in table.best) for j, text in enumerate(row)
        )
        + "</tr>"
        for i, row in enumerate(table.texts())
    )
    # A caption of the table itself would be as wide as the table, and cut off on a phone.
    name = f"t-{escape(table.name)}"
    named = f'<p class="caption" id="{name}">{_prose(table.caption)}</p>'
    body = f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
    inner = f'<table aria-labelledby="{name}">{body}</table>'
    kind = "table paper" if table.only_published else "table"
    framed = f'<div class="{kind}">{named}<div class="scroll" tabindex="0">{inner}</div></div>'
    if len(table.rows) <= LONG_TABLE:
        return framed
    return _folded(f"{table.caption} ({len(table.rows)} rows)", framed)


def _folded(title: str, inner: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{inner}</details>"


def _cell(tag: str, text: str, numeric: bool, best: bool = False) -> str:
    kind = ' class="number"' if numeric else ""
    scope = ' scope="col"' if tag == "th" else ""
    shown = f"<strong>{_prose(text)}</strong>" if best else _prose(text)
    return f"<{tag}{scope}{kind}>{shown}</{tag}>"

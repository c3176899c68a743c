"""What a report consists of, whatever it is written as."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from privit.report.show.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Text:
    """A paragraph, or a list of lines; `tone` is plain, behind or note.

    With `folded`, a page shows that text and opens the rest when asked.
    """

    lines: tuple[str, ...]
    tone: str = "plain"
    listed: bool = False
    folded: str = ""


def listed(lines: Iterable[str], tone: str = "plain", folded: str = "") -> Text:
    """A list, a line a bullet."""
    return Text(tuple(lines), tone, True, folded)


@dataclass(frozen=True)
class Picture:
    """A figure; where the paper has points to compare, `overlaid` is the same figure with them.

    A picture that is `only_published` shows nothing but the paper's numbers.
    """

    name: str
    alt: str
    caption: str
    figure: Figure = field(repr=False)
    overlaid: Figure | None = field(default=None, repr=False)
    overlay: str = ""
    only_published: bool = False


Item = Text | Picture | Table


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Document:
    """A whole report; `published_matches` says whether the paper has points of the same data set."""

    title: str
    summary: tuple[Item, ...]
    sections: tuple[Section, ...]
    published_matches: bool = False

    @property
    def items(self) -> list[Item]:
        """Everything in reading order."""
        return [*self.summary, *(item for section in self.sections for item in section.items)]

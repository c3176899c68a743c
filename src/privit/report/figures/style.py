"""How figures look: one palette, markers, line styles and hatches, readable in print and colour-blind."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privit.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, without its yellow, which vanishes on paper.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#6B6B6B"
SVG_DOTS_PER_INCH = 72
"""SVG counts in typographic points."""


@dataclass(frozen=True)
class Look:
    """How one method is drawn; hatch is for bars."""

    colour: str
    marker: str
    line: str | tuple[int, tuple[int, ...]]
    hatch: str


_CYCLE = (
    Look(BLUE, "o", "-", ""),
    Look(RED, "^", "--", "///"),
    Look(GREEN, "s", "-.", "..."),
    Look(PURPLE, "D", ":", "xxx"),
    Look(ORANGE, "v", (0, (5, 1, 1, 1)), "\\\\\\"),
    Look(SKY, "P", (0, (3, 1)), "---"),
    Look(BLACK, "X", (0, (1, 1)), "+++"),
    Look(GREY, "<", (0, (6, 2)), "ooo"),
    # Darker and lighter than the palette's: told apart by their markers and hatches.
    Look("#7A3B00", "h", "-.", "**"),
    Look("#8FA3AD", "*", "--", "|||"),
    Look("#004D73", "p", (0, (2, 2)), "//"),
    Look("#7FBF9E", ">", (0, (4, 1)), "O"),
)
_KNOWN = {
    "PriViT-G": 0,
    "PriViT": 0,
    "privit": 0,
    "PriViT-R": 1,
    "MPCViT": 2,
    "MPCViT+": 3,
    "SNL": 4,
    "MPCFormer": 5,
    "layer-wise": 7,
    "teacher": 6,
    "dense": 6,
    "dense, rewritten": 10,
    "random": 9,
    "uniform": 8,
}


def looks(labels: Iterable[str], later: Iterable[str] = ()) -> dict[str, Look]:
    """A look for each label, none twice while there are enough; well-known methods keep theirs.

    Those that come `later` take what is left: the first ones look the same with and without them.
    """
    found = _looks(dict.fromkeys(labels), {})
    return _looks([label for label in dict.fromkeys(later) if label not in found], found)


def _looks(labels: Iterable[str], given: dict[str, Look]) -> dict[str, Look]:
    found, waiting = dict(given), []
    for label in labels:
        known = _KNOWN.get(label)
        if known is not None and _CYCLE[known] not in found.values():
            found[label] = _CYCLE[known]
        else:
            waiting.append(label)
    free = [look for look in _CYCLE if look not in found.values()] or list(_CYCLE)
    for i, label in enumerate(waiting):
        found[label] = free[i % len(free)]
    return found


_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.7,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "hatch.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "lines.markersize": 6.5,
    "svg.fonttype": "path",
    # Without a salt of its own, element names change from run to run.
    "svg.hashsalt": "privit",
    # A label is what somebody called a run: a dollar sign in it is no formula.
    "text.parse_math": False,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Draws in the style of the report, whatever the user's matplotlib is set to."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("matplotlib", "report") from error
    # The canvas is chosen by new_figure; setting a backend here would load a window system.
    defaults: dict[Any, Any] = {k: v for k, v in matplotlib.rcParamsDefault.items() if "backend" not in k}
    with matplotlib.rc_context(defaults | _SETTINGS):
        yield


def new_figure(width: float = 6.4, height: float = 4.2) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    FigureCanvasAgg(figure)
    return figure


def settle(figure: Figure) -> None:
    """Computes where everything goes, once, and not again for each format that is written."""
    with drawing():
        figure.draw_without_rendering()
    figure.set_layout_engine("none")


def png(figure: Figure, dots_per_inch: int = 160) -> bytes:
    """The figure as PNG; the same bytes for the same figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    return _drawn(figure, FigureCanvasAgg(figure).print_png, dots_per_inch, {"Software": None})


def svg(figure: Figure) -> bytes:
    """The figure as SVG; the same bytes for the same figure."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    return _drawn(
        figure, FigureCanvasSVG(figure).print_svg, SVG_DOTS_PER_INCH, {"Date": None, "Creator": None}
    )


def _drawn(figure: Figure, write: Any, dots_per_inch: float, metadata: dict[str, None]) -> bytes:
    """What a canvas writes; savefig would draw everything twice, to find out what `settle` already knows."""
    target, before = io.BytesIO(), figure.dpi
    with drawing():
        figure.dpi = dots_per_inch
        try:
            write(target, metadata=metadata)
        finally:
            figure.dpi = before
    return target.getvalue()


def short(value: float) -> str:
    """A number with at most three digits and a unit prefix: 780669 as 781 K."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " K")):
        if abs(value) >= 0.9995 * limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def short_ticks(axis: Any) -> None:
    """Labels a matplotlib axis with `short` numbers."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def legend_rows(entries: int, columns: int = 3) -> float:
    """The height in inches that a legend below needs."""
    return 0.24 * -(-entries // columns)


def legend_below(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """A legend under the picture, where it covers no point."""
    found = list(zip(*axes.get_legend_handles_labels(), strict=True))
    # Lines come before error bars there; a reader looks for our own methods first.
    found.sort(key=lambda entry: entry[1].startswith("paper:"))
    if found:
        handles, labels = zip(*found, strict=True)
        figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))

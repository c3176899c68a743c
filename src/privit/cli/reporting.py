"""The verb of results: report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tyro.conf import Positional

from privit.cli.output import counter, note, show_fields, show_json


def report(
    runs: Positional[Path],
    out: Path | None = None,
    no_published: bool = False,
    protocol: str = "cheetah",
    json: bool = False,
) -> None:
    """Write a page, Markdown, figures and tables of what runs show.

    Args:
        runs: A sweep's folder, or any folder with runs in it.
        out: Where to write; by default RUNS/report.
        no_published: Leave out the points that the paper published.
        protocol: Whose bytes, rounds and seconds to show: cheetah, aby3 or semi2k-benchmark.
        json: Print one JSON object.
    """
    from privit.report import write_report

    result = write_report(runs, out, not no_published, protocol, counter("figures"))
    if json:
        show_json(result)
    else:
        show_fields("report", result)
        note(f"open {result['page']} in a browser")


VERBS: dict[str, Callable[..., None]] = {"report": report}

"""From a run to an artifact that knows when it is wrong: training writes it, serving tries it out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privit.artifact import Artifact

if TYPE_CHECKING:
    from privit.serve.measure.exported import Tried

SHOWN = 3
"""So many unproven places are told to a person; `privit export --json` has all."""


def export(
    run: Path,
    out: Path,
    budget: str | None = None,
    guard: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Artifact:
    """The artifact of a finished run in `out`: ranges, guard and error measured, the program tried.

    Args:
        run: a fine-tuned run, or any other that holds a model.
        budget: of a search with several.
        guard: whether the program ends with a bit that says if its values stayed in range.
        tell: called with what is being measured.
    """
    return export_and_try(run, out, budget, guard, tell)[0]


def export_and_try(
    run: Path,
    out: Path,
    budget: str | None = None,
    guard: bool = True,
    tell: Callable[[str], None] | None = None,
) -> tuple[Artifact, Tried]:
    """The artifact, and what trying its program showed."""
    # First, so that a missing engine is found out before anything is written.
    from privit.serve.measure.exported import finish_export
    from privit.train.export import artifact_logits
    from privit.train.finetune import export as write
    from privit.train.finetune import range_images

    written = write(run, out, budget)
    images = range_images(run, budget)
    return finish_export(Path(out), images, lambda given: artifact_logits(written, given), guard, tell)


def in_words(tried: Tried) -> dict[str, Any]:
    """What a person should know of a trial, as sentences by subject."""
    said: dict[str, Any] = {
        "a logit may be off by": f"{tried.logit_error:.3g}, twice the largest error on {tried.images} images",
    }
    for kind, names in tried.left.items():
        if names:
            said[f"tight for {kind} images"] = f"{', '.join(names)}: such images leave the range"
    if tried.dropped:
        why = "too few images, or odd ones break the short form"
        said["runs the engine's own function"] = f"{', '.join(tried.dropped)}: {why}"
    if tried.outside:
        said["good images outside"] = f"{tried.outside}: export with more images"
    if tried.unproven:
        first, more = "; ".join(tried.unproven[:SHOWN]), len(tried.unproven) - SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        said["not proven"] = f"{first}{rest}. There the guard is a check, not a proof (docs/security.md)"
    if tried.unseen:
        said["odd images that were wrong without a sign"] = tried.unseen
    return said

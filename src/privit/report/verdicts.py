"""What the points say about methods, in sentences; where the paper's method is behind, they say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from privit.report.cells import AXES, Point, by_method
from privit.report.figures.style import short
from privit.report.fronts import SAME_COST, Lead, leads, leads_at_equal_gelus

REFERENCES = ("dense", "teacher")
"""Methods that nobody competes with: the untouched model."""
ONE_KIND = ("snl",)
"""Methods that keep every softmax, so that their front ends at the cost of those."""


@dataclass(frozen=True)
class Verdict:
    """One sentence; `state` is ahead, level or behind, as every seed says, or mixed over points."""

    ours: str
    theirs: str
    axis: str
    state: str
    text: str
    short: str


def verdicts(points: Sequence[Point], axis: str) -> list[Verdict]:
    """Each of our methods against each other one, over one axis."""
    methods = by_method(point for point in points if point.cost(axis))
    ours = {label: found for label, found in methods.items() if found[0].first.ours}
    others = {
        label: found
        for label, found in methods.items()
        if label not in ours and not found[0].first.method.startswith(REFERENCES)
    }
    found: list[Verdict] = []
    for mine, own in ours.items():
        for other, theirs in others.items():
            if theirs[0].first.method in ONE_KIND:
                found += _equal_gelus(mine, own, other, theirs, axis)
            found.append(_as_fronts(mine, own, other, theirs, axis))
    return found


def _as_fronts(mine: str, ours: Sequence[Point], other: str, theirs: Sequence[Point], axis: str) -> Verdict:
    compared, cheaper = leads(ours, theirs, axis)
    unit = AXES[axis]
    ahead, behind = _with(compared, "ahead"), _with(compared, "behind")
    level = len(compared) - len(ahead) - len(behind)
    found = [(len(ahead), "ahead"), (level, "level"), (len(behind), "behind")]
    parts = []
    if len(compared) == 1:
        parts.append(f"at the cost of {other}'s one point {_one(mine, compared[0])}")
    elif compared:
        said = ", ".join(f"{word} at {count}" for count, word in found if count)
        parts.append(f"at the costs of {len(compared)} points of {other}'s front {mine} is {said}")
        if behind:
            worst = min(behind, key=lambda entry: entry.difference.mean)
            parts.append(f"the furthest behind: {_numbers(mine, worst)}")
    if cheaper:
        parts.append(_too_dear(mine, ours, other, cheaper, axis))
    places = [*((count, f"{word} at") for count, word in found), (len(cheaper), "dearer than")]
    said = ", ".join(f"{word} {count}" for count, word in places if count)
    total = len(compared) + len(cheaper)
    return Verdict(
        mine,
        other,
        axis,
        _state(len(ahead), level, len(behind), len(cheaper)),
        f"{mine} against {other}, by {unit}: {'; '.join(parts)}.",
        f"{mine} against {other}, by {unit}: {said} of {total} {'point' if total == 1 else 'points'}",
    )


def _too_dear(mine: str, ours: Sequence[Point], other: str, cheaper: Sequence[Point], axis: str) -> str:
    """What to say of points that are cheaper than anything of ours."""
    own, their = (min(found, key=lambda p: _cost(p, axis)) for found in (ours, cheaper))
    count = "a point" if len(cheaper) == 1 else f"{len(cheaper)} points"
    return (
        f"{other} has {count} cheaper than anything of {mine}: {_priced(their, axis)}, "
        f"where {mine}'s cheapest is {_priced(own, axis)}"
    )


def _priced(point: Point, axis: str) -> str:
    unit = {"seconds_lan": " s", "seconds_wan": " s", "sent_bytes": "B"}.get(axis, f" {AXES[axis]}")
    return f"{100 * point.accuracy.mean:.1f} % at {short(_cost(point, axis))}{unit}"


def _equal_gelus(
    mine: str, ours: Sequence[Point], other: str, theirs: Sequence[Point], axis: str
) -> list[Verdict]:
    compared = leads_at_equal_gelus(ours, theirs, axis)
    if not compared:
        return []
    said = "; ".join(
        f"with {short(entry.theirs.kept('gelu').mean)} GELU sites each, {_numbers(mine, entry)}, "
        f"{mine} at {entry.cost_ratio:.2g} times the {AXES[axis]}"
        for entry in compared
    )
    counts = [len(_with(compared, word)) for word in ("ahead", "level", "behind")]
    state = _state(counts[0], counts[1], counts[2], 0)
    start = f"{mine} against {other} at equal GELU budgets"
    words = zip(("ahead at", "level at", "behind at"), counts, strict=True)
    brief = ", ".join(f"{word} {count}" for word, count in words if count)
    text = f"{start} ({other} keeps every softmax): {said}."
    return [Verdict(mine, other, axis, state, text, f"{start}: {brief} of {len(compared)}")]


def _with(found: Sequence[Lead], verdict: str) -> list[Lead]:
    return [entry for entry in found if entry.verdict == verdict]


def _state(ahead: int, level: int, behind: int, cheaper: int) -> str:
    if behind or cheaper:
        return "mixed" if ahead else "behind"
    return "ahead" if ahead and not level else "level" if not ahead else "mixed"


def _one(mine: str, entry: Lead) -> str:
    return f"{mine} is {entry.verdict}: {_numbers(mine, entry)}"


def _numbers(mine: str, entry: Lead) -> str:
    seeds = entry.difference.count
    spread = f" ± {100 * entry.difference.deviation:.1f}" if seeds > 1 else ""
    over = f"over {seeds} seeds" if seeds > 1 else "one seed"
    return (
        f"{100 * entry.ours.accuracy.mean:.1f} % against {100 * entry.theirs.accuracy.mean:.1f} % "
        f"({100 * entry.difference.mean:+.1f}{spread} points, {over})"
    )


def _cost(point: Point, axis: str) -> float:
    found = point.cost(axis)
    assert found is not None
    return found.mean


HOW = (
    "Fronts are compared as fronts: at each point of the other method's front, with our best model that "
    f"costs no more (within {SAME_COST:.0%}). Ahead and behind mean on every seed; level, that seeds differ."
)

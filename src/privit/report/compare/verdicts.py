"""What the points say about methods; where the paper's method is behind, it is said in so many words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from privit.report.compare.fronts import SAME_COST, Lead, leads, leads_at_equal_gelus
from privit.report.figures.style import short
from privit.report.read.cells import AXES, Point, by_method

REFERENCES = ("dense", "teacher")
"""Methods that nobody competes with: the untouched model."""
PROSE = {"seconds_lan": "LAN seconds", "seconds_wan": "WAN seconds"}
"""Axes whose name has a comma, which a sentence has enough of."""
ONE_KIND = ("snl",)
"""Methods that keep every softmax, so that their front ends at the cost of those."""
HOW = (
    "Fronts are compared as fronts: at each point of the other method's front, with our best model that "
    f"costs no more (within {SAME_COST:.0%}). Ahead and behind mean on every seed; level, that seeds differ "
    "or tie; too dear, that none of ours costs as little."
)


@dataclass(frozen=True)
class Verdict:
    """One of our methods against another: our lead at each of its points that we can afford.

    `cheaper` are its points that cost less than anything of ours, `cheapest` is our cheapest. `counted` says
    that ours has a budget in cost and the other is PriViT with a budget in sites.
    """

    ours: str
    theirs: str
    axis: str
    leads: tuple[Lead, ...]
    cheaper: tuple[Point, ...]
    cheapest: Point
    equal_gelus: bool = False
    counted: bool = False

    def count(self, verdict: str) -> int:
        """At how many points we are ahead, level or behind."""
        return sum(entry.verdict == verdict for entry in self.leads)

    @property
    def points(self) -> int:
        """How many points the other method has."""
        return len(self.leads) + len(self.cheaper)

    @property
    def behind(self) -> bool:
        """Whether the other method has a point that we do not match."""
        return bool(self.cheaper) or self.count("behind") > 0

    @property
    def worst(self) -> Lead | None:
        """Where we are furthest behind, or None."""
        found = [entry for entry in self.leads if entry.verdict == "behind"]
        return min(found, key=lambda entry: entry.difference.mean, default=None)

    @property
    def by(self) -> str:
        """What is held equal."""
        return "equal GELUs" if self.equal_gelus else PROSE.get(self.axis, AXES[self.axis])

    @property
    def said(self) -> str:
        """In a few words: behind at 1 and too dear for 1 of 3 points."""
        words = [f"{word} at {n}" for word in ("ahead", "level", "behind") if (n := self.count(word))]
        words += [f"too dear for {len(self.cheaper)}"] if self.cheaper else []
        return f"{', '.join(words)} of {self.points}"

    @property
    def text(self) -> str:
        """A sentence with the numbers."""
        parts = [f"{self.ours} against {self.theirs} by {self.by}: {self.said}"]
        if len(self.leads) == 1 and not self.worst:
            parts.append(numbers(self.leads[0]))
        if self.worst:
            parts.append(f"the furthest behind: {numbers(self.worst)}")
        if self.cheaper:
            least = min(self.cheaper, key=lambda point: _cost(point, self.axis))
            parts.append(
                f"{self.theirs} reaches {_priced(least, self.axis)}, "
                f"where the cheapest {self.ours} has {_priced(self.cheapest, self.axis)}"
            )
        return "; ".join(parts) + "."


def verdicts(points: Sequence[Point], axes: Sequence[str]) -> list[Verdict]:
    """Each of our methods against each other one, over each axis that there is; SNL also at equal GELUs.

    Those with budgets in cost are also compared with those of ours with budgets in sites.
    """
    found: list[Verdict] = []
    for axis in axes:
        methods = by_method(point for point in points if point.cost(axis))
        ours = {label: own for label, own in methods.items() if own[0].first.ours}
        others = {
            label: theirs
            for label, theirs in methods.items()
            if label not in ours and not theirs[0].first.method.startswith(REFERENCES)
        }
        for mine, own in ours.items():
            cheapest = min(own, key=lambda point: _cost(point, axis))
            for other, theirs in others.items():
                compared, cheaper = leads(own, theirs, axis)
                found.append(Verdict(mine, other, axis, tuple(compared), tuple(cheaper), cheapest))
                # Accuracy at equal GELUs is the same on every axis.
                if theirs[0].first.method in ONE_KIND and axis == axes[0]:
                    equal = leads_at_equal_gelus(own, theirs, axis)
                    if equal:
                        found.append(Verdict(mine, other, axis, tuple(equal), (), cheapest, True))
            for other, theirs in ours.items() if own[0].first.allowance else ():
                if not theirs[0].first.allowance:
                    compared, cheaper = leads(own, theirs, axis)
                    verdict = Verdict(mine, other, axis, tuple(compared), tuple(cheaper), cheapest)
                    found.append(replace(verdict, counted=True))
    return found


def in_brief(found: Sequence[Verdict]) -> list[str]:
    """A line per other method that we do not match everywhere."""
    lines = []
    for other in dict.fromkeys(verdict.theirs for verdict in found if verdict.behind):
        own = [verdict for verdict in found if verdict.theirs == other and verdict.behind]
        lines.append(f"behind {other}: " + "; ".join(_brief(verdict) for verdict in own))
    return lines


def numbers(entry: Lead) -> str:
    """Two accuracies and their difference, paired by seed."""
    seeds = entry.difference.count
    spread = f" ± {100 * entry.difference.deviation:.1f}" if seeds > 1 else ""
    over = f"over {seeds} seeds" if seeds > 1 else "one seed"
    return (
        f"{100 * entry.ours.accuracy.mean:.1f} % against {100 * entry.theirs.accuracy.mean:.1f} % "
        f"({100 * entry.difference.mean:+.1f}{spread} points, {over})"
    )


def _brief(verdict: Verdict) -> str:
    points = f"of {verdict.points} {'point' if verdict.points == 1 else 'points'}"
    parts = []
    if verdict.worst:
        most = -100 * verdict.worst.difference.mean
        parts.append(f"at {verdict.count('behind')} {points}, by up to {most:.1f} percentage points")
    if verdict.cheaper:
        parts.append(f"dearer than {len(verdict.cheaper)} {points}")
    return f"{verdict.ours} by {verdict.by} {' and '.join(parts)}"


def _priced(point: Point, axis: str) -> str:
    unit = {"seconds_lan": " s", "seconds_wan": " s", "sent_bytes": "B"}.get(axis, f" {AXES[axis]}")
    return f"{100 * point.accuracy.mean:.1f} % at {short(_cost(point, axis))}{unit}"


def _cost(point: Point, axis: str) -> float:
    found = point.cost(axis)
    assert found is not None
    return found.mean

"""What a report is made of: one cell per trained model, and points, which are cells over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from privit.cost.budgets.price import Price

AXES = {
    "relu_ops": "ReLUOps",
    "and_gates": "AND gates",
    "sent_bytes": "bytes sent",
    "rounds": "rounds",
    "seconds_lan": "seconds, LAN",
    "seconds_wan": "seconds, WAN",
}
"""What a prediction may cost, by the names that cells use: all of it estimated."""
COUNTS = {"kept_gelu_elements": "exact GELUs kept (scalars)", "kept_softmax_rows": "exact softmax rows kept"}
"""What a model keeps, counted alike for every granularity."""
PRICE_AXES = {"bytes": "sent_bytes", "rounds": "rounds", "relu_ops": "relu_ops"}
"""Units of budgets in cost, as axes; seconds have one for each network."""
OURS = "privit"
"""Names of methods of the paper's own begin so."""


@dataclass(frozen=True)
class Subject:
    """What models must share to be compared: data set and architecture."""

    data: str
    model: str

    def __str__(self) -> str:
        return f"{self.data}, {self.model}"


@dataclass(frozen=True)
class Measured:
    """One quantity of one program, predicted and measured."""

    program: str
    protocol: str
    quantity: str
    predicted: float
    measured: float
    measured_on: str = ""

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1 if self.measured else 0.0


@dataclass(frozen=True)
class Answer:
    """What a model said under MPC of some test images: as in the clear or not, right or not, at what cost.

    `between` says whether it was asked between processes on a private protocol, or simulated.
    """

    protocol: str
    between: bool
    images: int
    same: int
    right: int
    sent_bytes: float
    rounds: float
    seconds: float


@dataclass(frozen=True)
class Experiment:
    """Cells that belong in one comparison, and which figures it asks for.

    `methods` maps a method to a sentence about it; `settings` are the hyperparameters of all of them.
    `priced` says whether some of its budgets are in cost, `protocol` in whose cost, if in one's alone.
    """

    name: str
    title: str
    shows: tuple[str, ...]
    paper: str = ""
    note: str = ""
    methods: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = ""
    priced: bool = False


@dataclass(frozen=True)
class Allowance:
    """A budget in cost: its price, what was allowed, what the search and the exported model were predicted.

    `predicted` is None where no search made the plan, `exported` where the protocol was not estimated.
    """

    price: Price
    allowed: float
    predicted: float | None = None
    exported: float | None = None

    @property
    def axis(self) -> str:
        """The axis that the budget is on; a network of one's own has none."""
        unit = self.price.unit
        return f"seconds_{self.price.network}" if unit == "seconds" else PRICE_AXES.get(unit, "")


@dataclass(frozen=True)
class Cell:
    """One trained model: what it is, how good it is and what it costs.

    `kept` counts exact sites per layer, `sites` all of them; `costs` has keys of `AXES` and `COUNTS`,
    `parts` are ReLUOps by what causes them, `layer_rounds` are named as the engine's segments are, and
    `kind_rounds` are those of attention (softmax) and MLP (gelu) layer by layer. `student` is what the model
    is called, `unservable` why it could not be exported; `predicted` are costs by protocol, `benched`
    what was measured by PROTOCOL or PROTOCOL/NETWORK, `answers` what it said when it was asked; `tokens` are
    those of each layer.
    """

    experiment: str
    method: str
    label: str
    budget: str
    seed: int
    subject: Subject
    accuracy: float
    kept: Mapping[str, Sequence[int]] = field(default_factory=dict)
    sites: Mapping[str, int] = field(default_factory=dict)
    granularity: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    layer_rounds: Mapping[str, float] = field(default_factory=dict)
    kind_rounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    allowance: Allowance | None = None
    class_names: Sequence[str] = ()
    class_accuracy: Sequence[float] = ()
    teacher_class_accuracy: Sequence[float] = ()
    teacher_accuracy: float | None = None
    measured: tuple[Measured, ...] = ()
    warnings: tuple[str, ...] = ()
    folder: str = ""
    student: str = ""
    student_label: str = ""
    unservable: str = ""
    validation_accuracy: float | None = None
    predicted: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    benched: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    answers: tuple[Answer, ...] = ()
    tokens: Sequence[int] = ()

    def total(self, kind: str) -> int:
        """How many exact sites of a kind are left."""
        return sum(self.kept.get(kind, ()))

    @property
    def replaces_norms(self) -> bool:
        """Whether some LayerNorm is not exact."""
        return self.total("norm") < self.sites.get("norm", 0)

    @property
    def pools(self) -> bool:
        """Whether some layer has fewer tokens than the first."""
        return len(set(self.tokens)) > 1

    @property
    def ours(self) -> bool:
        """Whether this is one of the paper's own method."""
        return self.method.startswith(OURS)


@dataclass(frozen=True)
class Missing:
    """A cell that was asked for and is not there, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Cells:
    """Everything that was found below a folder; `protocol` is the one whose bytes and seconds are shown."""

    title: str
    cells: tuple[Cell, ...]
    experiments: tuple[Experiment, ...] = ()
    missing: tuple[Missing, ...] = ()
    measured: tuple[Measured, ...] = ()
    protocol: str = "cheetah"
    facts: Mapping[str, str] = field(default_factory=dict)

    def of(self, experiment: Experiment) -> list[Cell]:
        """The cells of one experiment."""
        return [cell for cell in self.cells if cell.experiment == experiment.name]


@dataclass(frozen=True)
class Spread:
    """Mean, sample standard deviation (0 for one value) and how many values."""

    mean: float
    deviation: float
    count: int


def spread(values: Iterable[float]) -> Spread:
    """The spread of at least one value."""
    found = list(values)
    deviation = statistics.stdev(found) if len(found) > 1 else 0.0
    return Spread(statistics.fmean(found), deviation, len(found))


@dataclass(frozen=True)
class Point:
    """The cells that differ by nothing but their seed."""

    cells: tuple[Cell, ...]

    @property
    def first(self) -> Cell:
        """One of its cells, for what all of them share."""
        return self.cells[0]

    @property
    def seeds(self) -> list[int]:
        """Which seeds were run."""
        return sorted(cell.seed for cell in self.cells)

    @property
    def accuracy(self) -> Spread:
        """Accuracy on the test set over seeds."""
        return spread(cell.accuracy for cell in self.cells)

    def cost(self, axis: str) -> Spread | None:
        """The cost over seeds, or None where a cell has none."""
        return self.value(lambda cell: cell.costs.get(axis))

    def kept(self, kind: str) -> Spread:
        """Exact sites left, over seeds."""
        return spread(cell.total(kind) for cell in self.cells)

    def value(self, read: Callable[[Cell], float | None]) -> Spread | None:
        """Something of its cells over seeds, or None where one of them lacks it."""
        found = [read(cell) for cell in self.cells]
        known = [value for value in found if value is not None]
        return spread(known) if len(known) == len(found) else None


def points(cells: Iterable[Cell]) -> list[Point]:
    """Cells of one experiment, method and budget together, in the order in which they were found."""
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.experiment, cell.subject, cell.method, cell.budget), []).append(cell)
    return [Point(tuple(sorted(group, key=lambda cell: cell.seed))) for group in groups.values()]


def by_method(found: Iterable[Point]) -> dict[str, list[Point]]:
    """Points by the label of their method."""
    groups: dict[str, list[Point]] = {}
    for point in found:
        groups.setdefault(point.first.label, []).append(point)
    return groups

"""What a recipe asks for, and the reading of its TOML file; all problems are found before anything starts.

docs/recipes.md describes every key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privit.config import FinetuneConfig
from privit.cost.budgets.budget import Budget
from privit.cost.budgets.price import Price
from privit.errors import RequestError
from privit.presets import Preset
from privit.spec import Spec
from privit.sweep.methods import Method
from privit.sweep.recipe.asking import Asking


@dataclass(frozen=True)
class Setting:
    """What every method of a recipe has in common.

    `teacher_seed` is the seed of one teacher for all seeds; None gives each seed its own.
    """

    recipe: str
    size: str
    model: str
    data: str
    seeds: tuple[int, ...]
    stages: Preset
    matching: FinetuneConfig
    teacher_seed: int | None = None
    protocols: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    export: bool = True
    spec: Spec | None = None


@dataclass(frozen=True)
class Front:
    """Methods that are given the same budgets; those in cost have one `price`.

    A descent meets every budget; of those that `only` names, if it names any, models are made.
    """

    methods: tuple[Method, ...]
    budgets: tuple[Budget, ...]
    one_descent: bool = True
    price: Price | None = None
    only: tuple[str, ...] = ()

    def finished(self, budgets: Iterable[Budget]) -> list[Budget]:
        """Those of the budgets under which models are made."""
        return [budget for budget in budgets if not self.only or budget.name in self.only]


@dataclass(frozen=True)
class Experiment:
    """One table or figure: fronts that are shown together.

    `paper` is the paper's own label for it, `asking` what is asked of each finished model.
    """

    name: str
    title: str
    paper: str
    shows: tuple[str, ...]
    note: str
    fronts: tuple[Front, ...]
    asking: Asking
    setting: Setting

    @property
    def methods(self) -> list[Method]:
        """Every method once, in the order given."""
        return list({method.name: method for front in self.fronts for method in front.methods}.values())

    @property
    def prices(self) -> list[Price]:
        """The units of its budgets in cost, each once."""
        return list(dict.fromkeys(front.price for front in self.fronts if front.price is not None))


@dataclass(frozen=True)
class Recipe:
    """A recipe without problems."""

    name: str
    file: Path
    title: str
    expect: str
    experiments: tuple[Experiment, ...]


def read_recipe(file: Path) -> Recipe:
    """The recipe in a TOML file; every problem in it, and in the recipes it includes, comes in one error."""
    from privit.sweep.recipe.reading import parse_recipe

    recipe, problems = parse_recipe(file, read_toml(file))
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise RequestError(
            f"{file} has {count}:\n{lines}", "docs/recipes.md has every key; nothing was started"
        )
    assert recipe is not None
    return recipe


def read_toml(file: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(Path(file).read_text())
    except FileNotFoundError as error:
        raise RequestError(f"there is no recipe {file}", "recipes/ has some to start from") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} cannot be read: {error}", "give a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{file} is not TOML: {error}", "correct that line") from error


def opening_comment(file: Path) -> str:
    """The comment that a recipe opens with: its command, its time, what to expect."""
    lines = []
    for line in Path(file).read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    return "\n".join(lines).strip()


def recipe_name(file: Path) -> str:
    """How a recipe is called: its folder, which is its size, and its file."""
    return f"{Path(file).resolve().parent.name}/{Path(file).stem}"


def budget_from(table: Mapping[str, Any]) -> Budget:
    """A budget from `{gelu = 0.1, softmax = 0.2}`; its name says what it keeps unless one is given."""
    sites = {kind: value for kind, value in table.items() if kind != "name"}
    if len(set(map(repr, sites.values()))) == 1 and len(sites) > 1:
        name = f"keep-{_text(next(iter(sites.values())))}"
    else:
        name = "-".join(f"{kind}-{_text(value)}" for kind, value in sites.items())
    return Budget(sites, str(table.get("name", name)))


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

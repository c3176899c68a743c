"""Budgets in cost that a teacher refuses, and searches that train nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from privit.config import SearchConfig
from privit.cost.budgets.budget import Budget
from privit.errors import BudgetError
from privit.runs import load_run, read_json, write_text

REFUSED = "refused.json"
"""Beside a search's result: budgets that it left out, and why."""


def search_untrained(teacher: Path, run: Path, config: SearchConfig) -> None:
    """A search that trains nothing, under a trained search's settings."""
    from privit.train.training_free import TrainingFreeConfig, search_without_training

    search_without_training(teacher, run, TrainingFreeConfig.of(config))


def possible_budgets(teacher: Path, config: SearchConfig) -> tuple[SearchConfig, dict[str, str]]:
    """The settings without the budgets that this teacher cannot meet, and why each of those was left out.

    A recipe is checked before there is a teacher, whose ranges may make its functions longer than they could
    be. One budget that is too small stops no other; if all of them are, the search is refused.
    """
    if config.price is None or not config.budgets:
        return config, {}
    refused: dict[str, str] = {}
    found: list[Budget] = []
    for budget in sorted(config.budgets, key=lambda budget: budget.cost or 0.0):
        try:
            if not found:  # What pays for a smaller budget pays for the others.
                _refuse_below_floor(teacher, replace(config, budgets=(budget,)))
            found.append(budget)
        except BudgetError as error:
            refused[budget.name] = error.message
            if len(refused) == len(config.budgets):
                raise
    return replace(config, budgets=tuple(b for b in config.budgets if b in found)), refused


def note_refused(run: Path, refused: dict[str, str]) -> None:
    """Leaves in a search's folder which budgets it was not given."""
    if refused:
        write_text(run / REFUSED, json.dumps(refused, indent=2) + "\n")


def check_met(run: Path, budget: str | None) -> None:
    """Refuses a budget that its search left out, for the reason that it had."""
    if budget is not None and (run / REFUSED).is_file():
        reason = read_json(run / REFUSED).get(budget)
        if reason is not None:
            raise BudgetError(reason, "give a larger budget")


def _refuse_below_floor(teacher: Path, config: SearchConfig) -> None:
    from privit.train.descent.cost_ground import refuse_impossible
    from privit.train.stages import read_model

    assert config.price is not None
    model = read_model(load_run(teacher, "teacher")).with_tokens(config.tokens)
    refuse_impossible(model, model.subject.load(), config, config.price)

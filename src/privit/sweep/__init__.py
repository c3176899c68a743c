"""Grids of settings over seeds: recipes, what they ask for, and the running of it.

recipe.py                              what a recipe asks for
checking, fronts, tables, subject      its TOML file, or everything that is wrong with it
methods.py                             PriViT and its peers as settings of one path
priced.py, priced_work.py              budgets in cost: who can take them, which are possible; plans at a cost
tasks.py                               cells, and the stages that they share
work.py, outcome.py                    one stage; what a finished run is worth
runner.py, index.py                    jobs, resuming, failures; cell.json and sweep.json
"""

from privit.sweep.recipe import Recipe, read_recipe
from privit.sweep.runner import run_sweep

__all__ = ["Recipe", "read_recipe", "run_sweep"]

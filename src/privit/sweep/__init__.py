"""Grids of settings over seeds: recipes, what they ask for, and the running of it.

methods.py      PriViT and its peers as settings of one path
recipe/         a TOML file as a recipe, or everything that is wrong with it
run/            cells and the stages that they share; jobs, resuming, failures; cell.json and sweep.json
"""

from privit.sweep.recipe.recipe import Recipe, read_recipe
from privit.sweep.run.runner import run_sweep

__all__ = ["Recipe", "read_recipe", "run_sweep"]

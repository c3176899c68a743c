"""What a recipe may ask for and a report makes of an experiment: one list for both, in the order shown."""

from __future__ import annotations

SECTIONS = {
    "students": "every student",
    "front": "accuracy against cost",
    "budgets": "how far budgets in cost are spent",
    "softmax": "accuracy against softmaxes kept",
    "gelu": "accuracy against GELUs kept",
    "grid": "the grid of softmax and GELU budgets",
    "layers": "what each layer keeps",
    "rounds": "rounds by layer",
    "degradation": "what each class loses",
    "breakdown": "what the cost is spent on",
    "seconds": "seconds on each network",
    "table": "accuracy and cost of every model",
    "measured": "predicted against measured",
}
"""By name, what a reader sees. `measured` is one section of a whole report, of all that was measured."""

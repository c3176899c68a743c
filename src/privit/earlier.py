"""Settings that earlier versions wrote into config.json, in today's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RETIRED = frozenset(("sparsify", "compare_with", "temperature_squared", "max_cut_loss", "force"))
"""Settings that are gone: nothing set them, and their defaults are what is done now."""


def in_todays_names(stage: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A stage's settings as this version would have written them."""
    found = {name: value for name, value in settings.items() if name not in RETIRED}
    if stage == "search" and "warmup_epochs" in found and "penalty_warmup_epochs" not in found:
        # One setting was two: when penalties may grow, and how the learning rate rises unless it is constant.
        found["penalty_warmup_epochs"] = found["warmup_epochs"]
        if found.get("schedule") == "constant":
            found["warmup_epochs"] = 0
    return found

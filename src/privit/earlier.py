"""Settings as earlier versions wrote them into config.json, read and written so that their runs go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privit.operators import STAND_IN, UNTOUCHED

_NORM = {"exact": UNTOUCHED["norm"], "stand_in": STAND_IN["norm"], "granularity": "layer"}
"""What a search's settings say of LayerNorms unless told otherwise."""

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


def with_norms(name: str, setting: Any) -> Any:
    """A setting by kind, with what it says of LayerNorms where it was written before these had any."""
    return {"norm": _NORM[name], **setting} if isinstance(setting, Mapping) else setting


def as_before_norms(settings: Mapping[str, Any], stand_in: str | None = None) -> dict[str, Any]:
    """Settings without what says that all is as usual; `stand_in` is what may stand at LayerNorms.

    So a run that was written before these had settings is the same run, and so is a stage of a sweep.
    """
    usual = _NORM | ({} if stand_in is None else {"stand_in": stand_in})
    # What was done before there was such a setting.
    news: dict[str, tuple[Any, ...]] = {
        "tokens": ((), []),
        "operator_rate": (1.0,),
        "most_reused": (None,),
        "candidates": (False,),
        "kept": ({},),
        "hidden": (0.0,),
        "weigh": ({},),
    }
    found = {name: value for name, value in settings.items() if value not in news.get(name, ())}
    for name in found.keys() & _NORM.keys():
        if isinstance(found[name], Mapping) and found[name].get("norm") == usual[name]:
            found[name] = {kind: value for kind, value in found[name].items() if kind != "norm"}
    return found

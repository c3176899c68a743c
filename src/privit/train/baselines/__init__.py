"""What PriViT is compared with: plans that no search made, and MPCFormer's matching of hidden states.

MPCViT, MPCViT+ and SNL need nothing here: they are settings of the search (privit/sweep/methods.py).
"""

from privit.train.baselines.matching import match
from privit.train.baselines.plans import (
    layerwise_plan,
    random_plan,
    spread_plan,
    without_last_layers,
)

__all__ = ["layerwise_plan", "match", "random_plan", "spread_plan", "without_last_layers"]

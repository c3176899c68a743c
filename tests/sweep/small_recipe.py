"""The smallest recipe that still trains: a two-layer ViT on a few digits, seconds for all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privit.artifact import load_artifact
from privit.cost.estimate import estimate

SETTING = """# privit sweep small.toml
# Time: seconds. Expect: nothing of its accuracy.

model = "vit:image_size=8,patch=4,width=16,depth=2,heads=2,channels=1"
data = "digits"
preset = "digits"
seeds = [0]

[teacher]
epochs = 1
train_limit = 256

[search]
epochs = 3
switch_learning_rate = 0.1
epsilon = 1.0

[finetune]
epochs = 1

[matching]
epochs = 1

[cost]
protocols = ["aby3"]
networks = ["lan"]
"""

EXPERIMENT = """
[[experiments]]
name = "small"
methods = ["privit-g"]
keep = [0.5]
"""


def unguarded(out: Path, cell: dict[str, Any], protocol: str = "semi2k-benchmark") -> dict[str, Any]:
    """The cost of a cell's artifact without its guard, which budgets do not pay for."""
    artifact = load_artifact(out / cell["artifact"])
    assert artifact.public.guard
    return estimate(artifact.spec, artifact.plan, "spu", protocol=protocol, ranges=artifact.public.ranges)


def write_recipe(folder: Path, text: str = EXPERIMENT, setting: str = SETTING) -> Path:
    """A recipe file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "small.toml"
    file.write_text(setting + text)
    return file

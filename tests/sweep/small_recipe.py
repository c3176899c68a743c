"""The smallest recipe that still trains: a two-layer ViT on a few digits, seconds for all of it."""

from __future__ import annotations

from pathlib import Path

SETTING = """# privit sweep small.toml
# Time: seconds. Expect: nothing of its accuracy.

model = "vit:image_size=8,patch=4,width=16,depth=2,heads=2,channels=1"
data = "digits"
preset = "digits"
seeds = [0]

[teacher]
epochs = 1
train_limit = 128

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


def write_recipe(folder: Path, text: str = EXPERIMENT, setting: str = SETTING) -> Path:
    """A recipe file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "small.toml"
    file.write_text(setting + text)
    return file

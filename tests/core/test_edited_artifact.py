"""An artifact that was edited and hashed again is refused by what it says, not by its hash."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from privit.artifact import load_artifact
from privit.errors import ArtifactError

GOLDEN = Path(__file__).parents[1] / "golden" / "artifact-v1" / "server"
Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good artifact's server folder, to be edited."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "server"))


def hash_again(folder: Path) -> None:
    """Writes the manifest that belongs to the files as they are now."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["sha256"]:
        manifest["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def edit_public(folder: Path, edit: Edit) -> None:
    """Changes public.json and its hash."""
    public = json.loads((folder / "public.json").read_text())
    edit(public)
    (folder / "public.json").write_text(json.dumps(public))
    hash_again(folder)


def edit_arrays(folder: Path, name: str, edit: Edit) -> None:
    """Changes a file of arrays and its hash."""
    arrays = load_file(folder / name)
    with safe_open(folder / name, framework="numpy") as file:
        metadata = file.metadata()
    edit(arrays)
    save_file(arrays, folder / name, metadata=metadata)
    hash_again(folder)


def setting(*path: Any, value: Any) -> Edit:
    """An edit that sets one value, however deep."""

    def edit(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return edit


def test_what_was_only_hashed_again_still_loads(folder: Path) -> None:
    edit_public(folder, lambda _: None)
    edit_arrays(folder, "plan.safetensors", lambda _: None)
    edit_arrays(folder, "weights.safetensors", lambda _: None)
    assert load_artifact(folder).plan.hash() == load_artifact(GOLDEN).plan.hash()


PUBLIC = {
    "too few names": (setting("class_names", value=["a"]), "1 class names are given, but the model has 3"),
    "names of numbers": (setting("class_names", value=[1, 2, 3]), "something else than text"),
    "gelu": (setting("spec", "gelu", value="sigmoid"), "gelu is 'sigmoid', but erf or tanh was expected"),
    "pooling": (setting("spec", "pooling", value="max"), "pooling is 'max'"),
    "final norm": (setting("spec", "final_norm", value=None), "final_norm is None"),
    "epsilon": (setting("spec", "norm_eps", value=float("nan")), "norm_eps is nan"),
    "text for epsilon": (setting("spec", "norm_eps", value="x"), "does not describe a model"),
    "MLP width": (setting("spec", "blocks", 0, "mlp_width", value=0), "mlp_width is 0"),
    "a share of a head": (
        setting("spec", "blocks", 0, "heads", value=2.0),
        "heads is 2.0, not a whole number",
    ),
    "half a pixel": (setting("spec", "image_size", value=8.0), "image_size is 8.0, not a whole number"),
    "classes": (setting("spec", "classes", value=-3), "number of classes is -3"),
    "size": (setting("preprocessing", "size", value=16), "images of shape (1, 16, 16), but the model takes"),
    "channels": (setting("preprocessing", "channels", value=3), "but the model takes (1, 8, 8)"),
    "mean": (setting("preprocessing", "mean", value=[float("nan")]), "mean is [nan], but finite numbers"),
    "infinite std": (setting("preprocessing", "std", value=[float("inf")]), "std is [inf], but finite"),
    "std": (setting("preprocessing", "std", value=[0.0]), "std has a value that is not above 0"),
    "text mean": (setting("preprocessing", "mean", value=["x"]), "mean is ['x'], but finite numbers"),
    "crop": (setting("preprocessing", "crop", value=float("nan")), "crop is nan"),
    "interpolation": (setting("preprocessing", "interpolation", value="magic"), "'magic' is unknown"),
    "text range": (setting("ranges", "residual", value="wide"), "range residual is 'wide', not a finite"),
    "NaN range": (setting("ranges", "logits", value=float("nan")), "range logits is nan, not a finite"),
    "infinite range": (setting("ranges", "logits", value=float("inf")), "range logits is inf, not a finite"),
    "negative range": (setting("ranges", "logits", value=-1), "range logits is -1, not a finite"),
    "range of true": (setting("ranges", "logits", value=True), "range logits is True, not a finite"),
    "powers": (setting("ranges", "blocks.0.softmax.mean_exp", value=1e-30), "is 1e-30, but a mean of powers"),
    "variance": (setting("ranges", "norm.variance_low", value=1e30), "above norm.variance_high"),
    "enormous range": (setting("ranges", "norm.variance_high", value=1e308), "is 1e+308, more than any"),
    "ranges": (setting("ranges", value=[1]), "does not describe a model"),
}


@pytest.mark.parametrize("case", PUBLIC)
def test_a_public_part_that_makes_no_sense_is_refused(folder: Path, case: str) -> None:
    edit, words = PUBLIC[case]
    edit_public(folder, edit)
    with pytest.raises(ArtifactError, match=re.escape(words)):
        load_artifact(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused_by_name(folder: Path, value: float) -> None:
    edit_arrays(folder, "weights.safetensors", lambda weights: weights["head.weight"].fill(value))
    with pytest.raises(ArtifactError, match=r"NaN or infinity: head\.weight"):
        load_artifact(folder)


def test_weights_of_whole_numbers_are_refused(folder: Path) -> None:
    edit_arrays(folder, "weights.safetensors", lambda w: w.update({k: v.astype(int) for k, v in w.items()}))
    with pytest.raises(ArtifactError, match="the weights are int64, but floating-point"):
        load_artifact(folder)


def test_operator_ids_that_are_no_bytes_are_refused(folder: Path) -> None:
    edit_arrays(folder, "plan.safetensors", lambda p: p.update({"gelu.0": p["gelu.0"] + np.float32(0.5)}))
    with pytest.raises(ArtifactError, match="operator ids of type float32, but uint8 was expected"):
        load_artifact(folder)


def test_an_unknown_operator_and_an_unknown_granularity_are_refused(folder: Path) -> None:
    edit_arrays(folder, "plan.safetensors", lambda plan: plan["gelu.0"].fill(200))
    with pytest.raises(ArtifactError, match=r"gelu operator ids \[200\]"):
        load_artifact(folder)
    plan = load_file(folder / "plan.safetensors")
    save_file(plan, folder / "plan.safetensors", metadata={"granularity": '{"gelu": "pixel"}'})
    hash_again(folder)
    with pytest.raises(ArtifactError, match="not a readable plan: gelu is 'pixel', but token, element or"):
        load_artifact(folder)

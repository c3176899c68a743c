"""A host model by name, as a spec and canonical weights that any student can be filled with.

timm:NAME              pretrained weights: $PRIVIT_DATA/NAME.safetensors, else timm's own, downloaded
timm:NAME@FILE         from a local file, or $PRIVIT_DATA/FILE
hf:NAME                a Hugging Face ViT by name, or a folder with config.json and model.safetensors
FILE                   safetensors or a torch state dict; the file is called like its timm model,
                       or its heads are given: FILE:heads=3
vit:image_size=32,patch=4,width=96,depth=6,heads=3      a fresh model of that size
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from privit.artifact import Preprocessing
from privit.data.hub import hub_access
from privit.data.sources import beside_data, data_file
from privit.errors import RequestError
from privit.spec import Spec, with_image_size
from privit.train.hosts.checkpoint_files import build_from_shapes, position_grid, read_state_dict
from privit.train.hosts.fresh import parse_settings, parse_spec, random_head, random_weights
from privit.train.hosts.from_hf import convert_hf
from privit.train.hosts.from_timm import check_timm, convert_timm, refusal

__all__ = [
    "Host",
    "convert_hf",
    "convert_timm",
    "load_host",
    "random_weights",
    "replace_head",
    "resample_position",
]

NAME_FORMS = "timm:NAME, hf:NAME, a .safetensors file, or vit:image_size=32,patch=4,width=96,depth=6,heads=3"


@dataclass(frozen=True)
class Host:
    """A model ready to fill a student with.

    `preprocessing` is the model's own; None for a model that never saw an image.
    """

    name: str
    spec: Spec
    weights: dict[str, np.ndarray] = field(repr=False)
    preprocessing: Preprocessing | None = None


def load_host(
    name: str,
    classes: int | None,
    image_size: int | None,
    pretrained: bool = True,
    seed: int = 0,
    new_head: bool = False,
) -> Host:
    """The model of that name with `classes` classes at `image_size` pixels (None: its own).

    Position embeddings are resampled to the size. A head with another number of classes is an error
    unless `new_head` asks for a fresh one, drawn by `seed`; so is every weight if not `pretrained`.
    """
    if name.startswith("vit:"):
        spec = parse_spec(name[4:], classes, image_size)
        return Host(name, spec, random_weights(spec, seed))
    if name.startswith("timm:"):
        model, _, path = name[5:].partition("@")
        file = data_file(path) if path else beside_data(f"{model}.safetensors") if pretrained else None
        host = _timm(name, model, file, pretrained, seed)
    elif name.startswith("hf:"):
        host = _hf(name, name[3:], pretrained, seed)
    else:
        host = _file(name)
    if image_size is not None and image_size != host.spec.image_size:
        host = _at_size(host, image_size)
    if classes is not None and classes != host.spec.classes:
        # A head of random weights carries nothing that could be lost.
        if not (new_head or not pretrained or host.spec.classes == 0):
            raise RequestError(
                f"{name} has a head of {host.spec.classes} classes, but {classes} are needed",
                "--set new_head=true puts an untrained head there; or use data with the same classes",
            )
        host = replace_head(host, classes, seed)
    if host.spec.classes == 0:
        raise RequestError(f"{name} has no head", "say how many classes there are, or name the data")
    return host


def replace_head(host: Host, classes: int, seed: int) -> Host:
    """The same model with a fresh head for that many classes."""
    spec = replace(host.spec, classes=classes)
    return replace(host, spec=spec, weights=host.weights | random_head(spec, seed))


def resample_position(weights: dict[str, np.ndarray], before: Spec, after: Spec) -> dict[str, np.ndarray]:
    """The weights with the position embedding of `before`'s patches resampled to `after`'s.

    Bicubic with antialiasing, as timm's `resample_abs_pos_embed`; the class token's row stays.
    """
    if replace(after, image_size=before.image_size) != before:
        raise RequestError(
            "position embeddings can be resampled only between specs that differ in image size alone",
            "change one thing at a time",
        )
    if before.patches == after.patches:
        return dict(weights)
    prefix = int(before.class_token)
    old, new = (spec.image_size // spec.patch_size for spec in (before, after))
    position = torch.from_numpy(weights["position"])
    grid = position[prefix:].reshape(1, old, old, before.width).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(new, new), mode="bicubic", antialias=True)
    patches = grid.permute(0, 2, 3, 1).reshape(after.patches, after.width)
    return dict(weights) | {"position": torch.cat([position[:prefix], patches]).numpy()}


def _at_size(host: Host, image_size: int) -> Host:
    spec = with_image_size(host.spec, image_size)
    preprocessing = host.preprocessing and replace(host.preprocessing, size=image_size)
    return replace(
        host,
        spec=spec,
        weights=resample_position(host.weights, host.spec, spec),
        preprocessing=preprocessing,
    )


def _timm(name: str, model_name: str, path: Path | None, pretrained: bool, seed: int) -> Host:
    import timm

    if not timm.is_model(model_name.split(".")[0]):
        near = difflib.get_close_matches(model_name, timm.list_models(), n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "list them: timm.list_models('vit_*')"
        raise RequestError(f"timm has no model called {model_name!r}", hint)
    try:
        with torch.device("meta"):
            empty = timm.create_model(model_name)
    except RuntimeError as error:
        raise RequestError(
            f"timm cannot make {model_name!r}: {error}", "leave out the tag after the dot"
        ) from error
    check_timm(empty, model_name)  # before anything is read or downloaded
    state = None if path is None else read_state_dict(path)
    settings = {}
    if state is not None:
        settings = {"num_classes": len(state["head.weight"]) if "head.weight" in state else 0}
    with torch.random.fork_rng(devices=[]), hub_access():
        torch.manual_seed(seed)
        try:
            model = timm.create_model(model_name, pretrained=pretrained and state is None, **settings)
        except Exception as error:  # the hub's client raises requests', httpx' and its own errors
            raise _no_download(name, error) from error
    if state is not None:
        model = _fill(model, state, model_name, path)
    spec, weights = convert_timm(model.eval(), model_name)
    return Host(name, spec, weights, _timm_preprocessing(model, spec, model_name))


def _fill(model: Any, state: dict[str, torch.Tensor], model_name: str, path: Path | None) -> Any:
    """The model with the file's weights, at the size for which the file holds positions."""
    import timm

    patch = model.patch_embed.patch_size[0]
    grid = position_grid(state, model.no_embed_class)
    if grid is not None and grid * patch != model.patch_embed.img_size[0]:
        classes = model.num_classes
        model = timm.create_model(model_name, pretrained=False, num_classes=classes, img_size=grid * patch)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:3]]
        raise RequestError(
            f"{path} does not hold the weights of {model_name}: {' '.join(lines)[:300]}",
            "name the model that the file was saved from: timm:NAME@FILE",
        ) from error
    return model


def _timm_preprocessing(model: Any, spec: Spec, name: str) -> Preprocessing:
    from timm.data import resolve_model_data_config

    config = resolve_model_data_config(model)
    if config.get("crop_mode", "center") != "center":
        raise refusal(name, [f"its images are cropped by {config['crop_mode']!r}, not from the middle"])
    mean, std = (tuple(float(v) for v in config[key]) for key in ("mean", "std"))
    return Preprocessing(
        spec.image_size, spec.channels, mean, std, config["interpolation"], float(config["crop_pct"])
    )


def _hf(name: str, hub_name: str, pretrained: bool, seed: int) -> Host:
    from transformers import AutoConfig, ViTForImageClassification

    missing: set[str] = set()
    with torch.random.fork_rng(devices=[]), hub_access():
        torch.manual_seed(seed)
        try:
            config = AutoConfig.from_pretrained(hub_name)
            if config.model_type != "vit":
                raise refusal(
                    hub_name, [f"it is of type {config.model_type!r}, and only 'vit' is known here"]
                )
            if pretrained:
                model, report = ViTForImageClassification.from_pretrained(hub_name, output_loading_info=True)
                missing = set(report["missing_keys"])
            else:
                model = ViTForImageClassification(config)
        except (OSError, ValueError, RuntimeError) as error:
            raise _no_download(name, error) from error
        spec, weights = convert_hf(model.eval(), hub_name)
        preprocessing = _hf_preprocessing(hub_name, spec)
    lacking = sorted(key for key in missing if not key.startswith("classifier."))
    if lacking:
        raise RequestError(
            f"{hub_name} lacks weights: {', '.join(lacking[:5])}", "download it again, or name another model"
        )
    if missing:
        spec = replace(spec, classes=0)
        weights = {key: value for key, value in weights.items() if not key.startswith("head.")}
    return Host(name, spec, weights, preprocessing)


def _hf_preprocessing(hub_name: str, spec: Spec) -> Preprocessing | None:
    """What the processor beside the model says; None where there is no processor.

    Where theirs squashes a picture that is not square, ours takes its middle, as timm does.
    """
    from PIL import Image
    from transformers.image_processing_base import ImageProcessingMixin

    try:
        config, _ = ImageProcessingMixin.get_image_processor_dict(hub_name)
    except (OSError, ValueError):
        return None
    mean = config.get("image_mean") or (0.0,) * spec.channels
    std = config.get("image_std") or (1.0,) * spec.channels
    resample = Image.Resampling(config.get("resample", Image.Resampling.BILINEAR)).name.lower()
    crop = 1.0
    if config.get("do_center_crop") and "shortest_edge" in config.get("size", {}):
        crop = spec.image_size / config["size"]["shortest_edge"]
    return Preprocessing(spec.image_size, spec.channels, tuple(mean), tuple(std), resample, crop)


def _file(name: str) -> Host:
    """A local file: by the timm model it is called like, or by its shapes and the number of heads."""
    import timm

    text, _, settings = name.rpartition(":") if "=" in name.rpartition(":")[2] else (name, "", "")
    path = data_file(text)
    if not path.is_file():
        raise RequestError(f"no model is called {name!r}, and it is not a file", f"give {NAME_FORMS}")
    model_name = path.name.split(".")[0]
    if not settings and timm.is_model(model_name):
        return replace(_timm(name, model_name, path, True, 0), name=name)
    model = build_from_shapes(read_state_dict(path), parse_settings(settings), str(path))
    spec, weights = convert_timm(model, path.name)
    return Host(name, spec, weights)


def _no_download(name: str, error: Exception) -> RequestError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return RequestError(
        f"the weights of {name} could not be had: {reason[:200]}",
        "check the name and the network; or give a local file (timm:NAME@FILE.safetensors, hf:FOLDER); "
        "or start from random weights (pretrained off)",
    )

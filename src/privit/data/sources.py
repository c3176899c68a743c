"""Where images come from: bundled digits, Hugging Face data sets, parquet files, folders of classes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from privit.data.hub import hub_access
from privit.data.images import decode_image, open_image
from privit.errors import MissingExtra, RequestError

HUB_NAMES = {
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "tiny-imagenet": "zh-plus/tiny-imagenet",
    "fashion-mnist": "zalando-datasets/fashion_mnist",
}
"""Short names, and where the Hugging Face hub keeps them."""

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
"""What files, folders and hubs call a split, and what it is called here."""

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}

IN_MEMORY_BYTES = 2**31
"""Parquet files up to this size are read whole; larger ones are mapped from the cache of `datasets`."""

LAYOUT = (
    "train-*.parquet and test-*.parquet in the Hugging Face layout, or train/CLASS/*.png and test/CLASS/*.png"
)
"""What a local folder may look like, for error messages."""


class Source(ABC):
    """Images with labels, read one at a time."""

    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def image(self, i: int) -> Image.Image:
        """The i-th picture, upright, 8-bit grey or RGB."""


@dataclass(frozen=True)
class ArraySource(Source):
    """Pictures that are already decoded, uint8 (n, H, W) or (n, H, W, 3)."""

    array: np.ndarray = field(repr=False)
    labels: np.ndarray = field(repr=False)

    def image(self, i: int) -> Image.Image:
        """The i-th picture."""
        return Image.fromarray(self.array[i])


@dataclass(frozen=True)
class FileSource(Source):
    """One file per picture."""

    paths: list[Path] = field(repr=False)
    labels: np.ndarray = field(repr=False)

    def image(self, i: int) -> Image.Image:
        """The i-th picture."""
        return open_image(self.paths[i])


@dataclass(frozen=True)
class TableSource(Source):
    """An Arrow column of encoded pictures, bytes or {bytes, path}, decoded when asked for."""

    column: Any = field(repr=False)
    labels: np.ndarray = field(repr=False)
    name: str = "data set"

    def image(self, i: int) -> Image.Image:
        """The i-th picture."""
        value = self.column[i].as_py()
        data = value if isinstance(value, bytes) else value["bytes"]
        return open_image(value["path"]) if data is None else decode_image(data, f"image {i} of {self.name}")


@dataclass(frozen=True)
class Sources:
    """What was found under a name; `splits` has "train" and may have "validation" and "test"."""

    splits: dict[str, Source]
    class_names: tuple[str, ...]


def beside_data(name: str) -> Path | None:
    """The file or folder of that name below $PRIVIT_DATA, if there is one."""
    below = os.environ.get("PRIVIT_DATA")
    return Path(below) / name if below and (Path(below) / name).exists() else None


def data_file(name: str) -> Path:
    """A file by its path or, where there is none, by its path below $PRIVIT_DATA."""
    path = Path(name).expanduser()
    beside = None if path.is_file() else beside_data(str(path))
    return beside if beside and beside.is_file() else path


def find_sources(name: str) -> Sources:
    """The images that a data set's name stands for; says what would do where there are none."""
    if name == "digits":
        return _digits()
    if name in HUB_NAMES:
        local = beside_data(name)
        return _folder(local) if local and local.is_dir() else _hub(HUB_NAMES[name], name)
    if name.startswith("hf:"):
        return _hub(name[3:], name)
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(path)
    known = ", ".join(["digits", *HUB_NAMES])
    raise RequestError(
        f"no data set is called {name!r}, and it is not a folder",
        f"known: {known}, hf:NAME, or a folder with {LAYOUT}",
    )


def _digits() -> Sources:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtra("scikit-learn", "data") from error
    bunch = load_digits()
    # scikit-learn keeps the 17 grey levels 0..16 as floats.
    array = np.round(bunch.images * (255 / bunch.images.max())).astype(np.uint8)
    source = ArraySource(array, bunch.target.astype(np.int64))
    return Sources({"train": source}, tuple(str(name) for name in bunch.target_names))


def _folder(folder: Path) -> Sources:
    parquet = sorted(folder.glob("*.parquet")) or sorted(folder.glob("data/*.parquet"))
    return _parquet_folder(folder, parquet) if parquet else _image_folder(folder)


def _parquet_folder(folder: Path, paths: list[Path]) -> Sources:
    datasets = _datasets()
    import pyarrow as pa
    import pyarrow.parquet as pq

    files: dict[str, list[Path]] = {}
    for path in paths:
        split = SPLIT_NAMES.get(path.name.split("-")[0].split(".")[0].lower())
        if split is None:
            raise RequestError(f"{path} does not say which split it belongs to", f"expected: {LAYOUT}")
        files.setdefault(split, []).append(path)
    try:
        if sum(path.stat().st_size for path in paths) > IN_MEMORY_BYTES:
            names = {split: [str(path) for path in members] for split, members in files.items()}
            return _tables(datasets.load_dataset("parquet", data_files=names), str(folder))
        tables = {
            split: datasets.Dataset(pa.concat_tables([pq.read_table(path) for path in members]))
            for split, members in files.items()
        }
    except (OSError, pa.ArrowInvalid, datasets.exceptions.DatasetGenerationError) as error:
        raise RequestError(
            f"{folder} holds parquet files that cannot be read: {error}", "copy them again"
        ) from error
    return _tables(tables, str(folder))


def _hub(hub_name: str, name: str) -> Sources:
    datasets = _datasets()
    try:
        repository, _, variant = hub_name.partition(":")
        with hub_access():
            found = datasets.load_dataset(repository, variant or None)
    except Exception as error:  # the hub's client raises requests', httpx' and its own errors
        reason = (str(error) or type(error).__name__).splitlines()[0]
        where = (
            f"put {LAYOUT} in $PRIVIT_DATA/{name}" if name in HUB_NAMES else f"give a folder with {LAYOUT}"
        )
        raise RequestError(f"{name} could not be downloaded ({hub_name}): {reason}", where) from error
    splits = {SPLIT_NAMES[key]: value for key, value in found.items() if key in SPLIT_NAMES}
    return _tables(splits, name)


def _tables(tables: dict[str, Any], name: str) -> Sources:
    """Sources from `datasets.Dataset`s, by the types of their columns."""
    if "train" not in tables:
        raise RequestError(
            f"{name} has no train split: {', '.join(tables) or 'nothing'}", f"expected: {LAYOUT}"
        )
    image, label = _columns(tables["train"], name)
    features = tables["train"].features
    names = getattr(features[label], "names", None)
    values = {split: table.with_format("numpy")[label][:] for split, table in tables.items()}
    if names is None:
        names = [str(value) for value in np.unique(np.asarray(values["train"]))]
        if values["train"].dtype.kind in "iu":
            names = [str(i) for i in range(int(max(v.max() for v in values.values())) + 1)]
        else:
            values = {s: np.searchsorted(names, np.asarray(v).astype(str)) for s, v in values.items()}
    splits: dict[str, Source] = {}
    for split, table in tables.items():
        labels = np.asarray(values[split]).astype(np.int64)
        # Competitions publish their test images with the label -1.
        if len(labels) and labels.min() < 0 and split != "train":
            continue
        _check_labels(labels, len(names), f"{name}, {split}")
        splits[split] = TableSource(table.data.column(image), labels, f"{name}, {split}")
    return Sources(splits, tuple(names))


def _columns(table: Any, name: str) -> tuple[str, str]:
    """The columns that hold the picture and the label."""
    features = table.features
    kinds = {key: type(feature).__name__ for key, feature in features.items()}
    images = [k for k, kind in kinds.items() if kind == "Image"]
    images += [k for k, f in features.items() if isinstance(f, dict) and "bytes" in f]
    images += [k for k in ("image", "img") if getattr(features.get(k), "dtype", "") == "binary"]
    labels = [k for k in ("label", "labels", "fine_label", "class") if k in features]
    labels += [k for k, kind in kinds.items() if kind == "ClassLabel"]
    if not images or not labels:
        lacking = "image" if not images else "label"
        raise RequestError(
            f"{name} has no {lacking} column; its columns are {', '.join(features)}",
            "expected a column of images and an integer column called label",
        )
    return images[0], labels[0]


def _image_folder(folder: Path) -> Sources:
    named = {d.name: d for d in sorted(folder.iterdir()) if d.is_dir()}
    splits = {SPLIT_NAMES[n.lower()]: d for n, d in named.items() if n.lower() in SPLIT_NAMES}
    if "train" not in splits:
        splits = {"train": folder}
    class_names = tuple(d.name for d in sorted(splits["train"].iterdir()) if d.is_dir() and any(_pictures(d)))
    if len(class_names) < 2:
        raise RequestError(
            f"{splits['train']} holds images of {len(class_names)} classes, but at least 2 were expected",
            f"expected: {LAYOUT}",
        )
    found: dict[str, Source] = {}
    for split, root in splits.items():
        extra = {d.name for d in root.iterdir() if d.is_dir() and any(_pictures(d))} - set(class_names)
        if extra:
            raise RequestError(
                f"{root} has classes that {splits['train']} lacks: {', '.join(sorted(extra)[:5])}",
                "use the same class folders in every split",
            )
        members = [(path, i) for i, name in enumerate(class_names) for path in _pictures(root / name)]
        labels = np.array([i for _, i in members], dtype=np.int64)
        found[split] = FileSource([path for path, _ in members], labels)
    return Sources(found, class_names)


def _pictures(folder: Path) -> list[Path]:
    return (
        sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES) if folder.is_dir() else []
    )


def _check_labels(labels: np.ndarray, classes: int, where: str) -> None:
    if len(labels) == 0:
        raise RequestError(f"{where}: there are no images", f"expected: {LAYOUT}")
    if labels.min() < 0 or labels.max() >= classes:
        raise RequestError(
            f"{where}: labels go from {labels.min()} to {labels.max()}, but there are {classes} classes",
            "labels are expected to count from 0",
        )


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("datasets", "data") from error
    return datasets

"""Pictures with labels, by name: one loader for every data set, free of torch.

digits                                        bundled with scikit-learn
cifar10  cifar100  tiny-imagenet  fashion-mnist   $PRIVIT_DATA/NAME, else downloaded
hf:NAME or hf:NAME:VARIANT                    any Hugging Face image data set
FOLDER                                        parquet files (train-*.parquet, test-*.parquet), or
                                              FOLDER/train/CLASS/*.png, or FOLDER/CLASS/*.png
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from PIL import Image

from privit.artifact import Preprocessing
from privit.data.images import check_preprocessing, normalise, preprocess, resize_image
from privit.data.sources import Source, find_sources
from privit.errors import RequestError
from privit.spec import Spec

__all__ = ["Data", "Split", "default_preprocessing", "load_data", "preprocess", "preprocess_split", "resized"]

TEST_SHARE = 0.2
"""Share of the images that become the test set where a data set brings none."""

TEST_SEED = 20231030
"""Draws that test set: fixed, so that no seed of a run ever moves an image between training and test."""

STATISTICS_IMAGES = 2000
"""How many training images the mean and deviation of a fresh model's input are taken from."""

CACHE_BYTES = 2**31
"""Decoded pixels of one split are kept in memory up to this size."""


@dataclass(frozen=True)
class Split:
    """Some images of a source, in a fixed order, with their labels."""

    source: Source = field(repr=False)
    indices: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.indices)

    @cached_property
    def labels(self) -> np.ndarray:
        """Class of each image, int64."""
        return self.source.labels[self.indices]

    def image(self, i: int) -> Image.Image:
        """The i-th picture, upright, 8-bit grey or RGB."""
        return self.source.image(int(self.indices[i]))

    def subset(self, positions: np.ndarray) -> Split:
        """The images at these positions of this split."""
        return Split(self.source, self.indices[np.asarray(positions, dtype=np.int64)])

    def pixels(self) -> np.ndarray | None:
        """All images as one uint8 array (n, H, W, C), decoded once and kept.

        None where sizes or modes differ between images, or where the array would not fit in memory.
        """
        return self._pixels

    @cached_property
    def _pixels(self) -> np.ndarray | None:
        if len(self) == 0:
            return None
        first = np.atleast_3d(np.asarray(self.image(0)))
        if first.nbytes * len(self) > CACHE_BYTES:
            return None
        pixels = np.empty((len(self), *first.shape), dtype=np.uint8)
        for i in range(len(self)):
            picture = np.atleast_3d(np.asarray(self.image(i)))
            if picture.shape != first.shape:
                return None
            pixels[i] = picture
        return pixels


@dataclass(frozen=True)
class Data:
    """A data set: training, validation (for every choice) and test (for the final figure only)."""

    name: str
    train: Split
    validation: Split
    test: Split
    class_names: tuple[str, ...]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


def load_data(
    name: str, seed: int = 0, train_limit: int | None = None, validation_share: float = 0.1
) -> Data:
    """The data set of that name, split by `seed`.

    The test set depends on the data set alone. `train_limit` draws that many training images, as
    many of each class as there are. Where the data set brings no validation split, `validation_share` of the
    training images (of `train_limit`, if given, and besides it) become one.
    """
    if not 0 < validation_share < 1:
        raise RequestError(
            f"the validation share is {validation_share}, but a share between 0 and 1 was expected",
            "give a share such as 0.1",
        )
    found = find_sources(name)
    test, pool = _test_and_pool(found.splits)
    rng = np.random.default_rng(seed)
    given = found.splits.get("validation") if "test" in found.splits else None
    if given is not None:
        validation = Split(given, np.arange(len(given)))
    else:
        size = max(1, round(validation_share * min(train_limit or len(pool), len(pool))))
        order = _stratified_order(pool.labels, rng)
        validation, pool = pool.subset(np.sort(order[:size])), pool.subset(np.sort(order[size:]))
    train = pool if train_limit is None else _limit(pool, train_limit, rng)
    return Data(name, train, validation, test, found.class_names)


def _test_and_pool(splits: dict[str, Source]) -> tuple[Split, Split]:
    """The test set, and the images that training and validation are drawn from."""
    train = Split(splits["train"], np.arange(len(splits["train"])))
    # A data set with only a validation split publishes its figures on that: it serves as the test set.
    test = splits.get("test", splits.get("validation"))
    if test is not None:
        return Split(test, np.arange(len(test))), train
    order = _stratified_order(train.labels, np.random.default_rng(TEST_SEED))
    size = round(TEST_SHARE * len(train))
    return train.subset(np.sort(order[:size])), train.subset(np.sort(order[size:]))


def _limit(pool: Split, limit: int, rng: np.random.Generator) -> Split:
    if not 0 < limit <= len(pool):
        raise RequestError(
            f"{limit} training images are asked for, but the data set has {len(pool)} besides validation",
            f"give 1 to {len(pool)}, or leave the limit out",
        )
    ranks = _rank_in_class(pool.labels, rng)
    # Equal counts per class: every class's first image, then every class's second, and so on.
    order = np.lexsort((rng.permutation(len(pool)), ranks))
    return pool.subset(np.sort(order[:limit]))


def _rank_in_class(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random number from 0 to (size of its class - 1) for each image, without repetition in a class."""
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    starts = np.cumsum(counts) - counts
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[by_class] = np.arange(len(labels)) - starts[labels[by_class]]
    return ranks


def _stratified_order(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An order whose every beginning has the classes in the shares of the whole."""
    share = (_rank_in_class(labels, rng) + 0.5) / np.bincount(labels)[labels]
    return np.lexsort((rng.permutation(len(labels)), share))


def resized(split: Split, preprocessing: Preprocessing, indices: np.ndarray | None = None) -> np.ndarray:
    """Pixels at the model's size, uint8 (n, S, S, C): a quarter of the memory of the normalised input."""
    check_preprocessing(preprocessing)
    chosen = np.arange(len(split)) if indices is None else np.asarray(indices, dtype=np.int64)
    size, channels = preprocessing.size, preprocessing.channels
    pixels = np.empty((len(chosen), size, size, channels), dtype=np.uint8)
    for row, i in enumerate(chosen):
        pixels[row] = resize_image(split.image(i), preprocessing)
    return pixels


def preprocess_split(
    split: Split, preprocessing: Preprocessing, indices: np.ndarray | None = None
) -> np.ndarray:
    """Model inputs float32 (n, C, S, S) of a split, or of the images at `indices` in it."""
    return normalise(resized(split, preprocessing, indices), preprocessing)


def default_preprocessing(data: Data, spec: Spec) -> Preprocessing:
    """For a model that brings none: the whole picture, normalised by the training images' statistics."""
    plain = Preprocessing(spec.image_size, spec.channels, (0.0,) * spec.channels, (1.0,) * spec.channels)
    step = max(1, len(data.train) // STATISTICS_IMAGES)
    pixels = resized(data.train, plain, np.arange(0, len(data.train), step)) / 255.0
    mean = tuple(round(float(m), 4) for m in pixels.mean((0, 1, 2)))
    std = tuple(max(round(float(s), 4), 1e-3) for s in pixels.std((0, 1, 2)))
    return Preprocessing(spec.image_size, spec.channels, mean, std)

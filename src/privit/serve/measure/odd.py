"""Images that no data set holds, to see what a program does with them."""

from __future__ import annotations

import numpy as np

from privit.artifact import Preprocessing

EACH = 8


def odd_images(preprocessing: Preprocessing, images: np.ndarray, each: int = EACH) -> dict[str, np.ndarray]:
    """Noise, flat, inverted and shuffled images (each, C, S, S), preprocessed; the latter of `images`."""
    rng = np.random.default_rng(0)
    shape = (each, *images.shape[1:])
    some = images[np.linspace(0, len(images) - 1, each).astype(int)]
    levels = np.linspace(0, 1, each)[:, None, None, None]
    order = rng.permutation(shape[2] * shape[3])
    return {
        "noise": normalised(preprocessing, rng.uniform(0, 1, shape)),
        "flat": normalised(preprocessing, np.broadcast_to(levels, shape)),
        "inverted": inverted(preprocessing, some),
        "shuffled": some.reshape(*shape[:2], -1)[:, :, order].reshape(shape),
    }


def normalised(preprocessing: Preprocessing, pixels: np.ndarray) -> np.ndarray:
    """Pixels (n, C, S, S) from 0 to 1 as the model reads them."""
    mean, std = (np.array(v)[:, None, None] for v in (preprocessing.mean, preprocessing.std))
    return ((pixels - mean) / std).astype(np.float32)


def inverted(preprocessing: Preprocessing, images: np.ndarray) -> np.ndarray:
    """Preprocessed images with dark for bright."""
    return normalised(preprocessing, np.ones_like(images)) + normalised(preprocessing, 0 * images) - images

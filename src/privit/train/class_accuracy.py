"""What a finished run is worth: its accuracy on the test set, class by class."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from privit.data.datasets import Data
from privit.train.loop.batches import Images, predicted
from privit.train.stages import Model


def class_accuracy(model: Model, data: Data) -> dict[str, Any]:
    """Accuracy on the test set, over all of it and in each class, with the number of images of each."""
    found = classes_of_test(model, data)
    labels = np.asarray(data.test.labels)
    classes = len(model.subject.class_names)
    images = np.bincount(labels, minlength=classes)
    hits = np.bincount(labels[found == labels], minlength=classes)
    return {
        "accuracy": float(hits.sum() / len(labels)),
        "per_class_accuracy": [float(h / n) if n else None for h, n in zip(hits, images, strict=True)],
        "per_class_images": images.tolist(),
        "test_images": len(labels),
    }


def classes_of_test(model: Model, data: Data) -> np.ndarray:
    """The class that the model says of every test image."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    # Read once, so nothing is gained by keeping them.
    images = Images(data.test, model.subject.preprocessing, memory_bytes=0)
    parts = predicted(model.student().to(device), images, device or "cpu")
    return np.concatenate([logits.argmax(dim=-1).numpy() for _, logits in parts])

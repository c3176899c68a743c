"""What a finished run is worth: its accuracy on the test set, class by class."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from privit.data.datasets import Data, preprocess_split
from privit.train.loop.loop import EVALUATION_BATCH
from privit.train.stages import Model


def class_accuracy(model: Model, data: Data) -> dict[str, Any]:
    """Accuracy on the test set, over all of it and in each class, with the number of images of each."""
    found = test_predictions(model, data)
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


def test_predictions(model: Model, data: Data) -> np.ndarray:
    """The class that the model says of every test image."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    student = model.student().eval().to(device)
    found = []
    with torch.no_grad():
        for start in range(0, len(data.test), EVALUATION_BATCH):
            part = np.arange(start, min(start + EVALUATION_BATCH, len(data.test)))
            pixels = preprocess_split(data.test, model.subject.preprocessing, part)
            found.append(student(torch.from_numpy(pixels).to(device)).argmax(dim=-1).cpu().numpy())
    return np.concatenate(found)

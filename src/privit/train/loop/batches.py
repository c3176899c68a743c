"""Which images each process sees at which step, preprocessed once where they fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from privit.artifact import Preprocessing
from privit.config import TrainConfig
from privit.data.datasets import Split, resized
from privit.data.images import normalise
from privit.errors import RequestError
from privit.train.loop.losses import correct


class Images:
    """The images of a split at the model's size, kept in memory up to a limit, beyond it made on demand."""

    def __init__(self, split: Split, preprocessing: Preprocessing, memory_bytes: int):
        self.split, self.preprocessing = split, preprocessing
        self.labels = np.asarray(split.labels, dtype=np.int64)
        fits = preprocessing.channels * preprocessing.size**2 * len(split) <= memory_bytes
        self._all = resized(split, preprocessing) if fits else None

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, indices: np.ndarray) -> np.ndarray:
        """The images at these indices, uint8 (n, S, S, C)."""
        if self._all is not None:
            return self._all[indices]
        return resized(self.split, self.preprocessing, indices)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Model inputs at these indices, float32 (n, C, S, S)."""
        return normalise(self.pixels(indices), self.preprocessing)


@dataclass(frozen=True)
class Share:
    """One process of several."""

    rank: int = 0
    processes: int = 1


EVALUATION_BATCH = 256


@torch.no_grad()
def predicted(
    model: nn.Module, images: Images, device: torch.device | str, share: Share | None = None
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Batch by batch of one process's share: which images, and the model's logits of them, on the CPU."""
    share = share or Share()
    model.eval()
    step = EVALUATION_BATCH * share.processes
    for start in range(EVALUATION_BATCH * share.rank, len(images), step):
        part = np.arange(start, min(start + EVALUATION_BATCH, len(images)))
        yield part, model(to_tensor(images.take(part), device)).float().cpu()


def count_correct(
    model: nn.Module, images: Images, device: torch.device | str, share: Share | None = None
) -> Tensor:
    """How many images of one process's share are classified rightly."""
    hits = torch.zeros((), dtype=torch.int64)
    for part, logits in predicted(model, images, device, share):
        hits += correct(logits, torch.from_numpy(images.labels[part]))
    return hits


@dataclass(frozen=True)
class Batch:
    """What one process sees in one optimizer step or a part of it; `indices` are into the training split."""

    images: Tensor  # (B, C, S, S)
    labels: Tensor  # (B,), or (B, classes) after mixup
    indices: np.ndarray


Change = Callable[[Batch, int, int, int], Batch]
"""Maps a batch, its epoch, step and part to the batch that teacher and student both see."""


def batch_size(config: TrainConfig, images: int, processes: int) -> int:
    """Images in a global batch: as configured, or fewer for a data set smaller than that."""
    parts = processes * config.accumulation
    size = min(config.batch_size, images) // parts * parts
    if config.batch_size % parts:
        raise RequestError(
            f"a batch of {config.batch_size} does not divide into {processes} processes "
            f"x {config.accumulation} accumulated steps",
            f"give a batch size that is a multiple of {parts}",
        )
    if not size:
        raise RequestError(f"{images} training images are fewer than {parts} processes and accumulated steps")
    return size


def global_batches(seed: int, epoch: int, images: int, size: int) -> np.ndarray:
    """Indices (steps, size) of an epoch, the same in every process; the last incomplete batch is dropped."""
    order = np.random.default_rng([seed, epoch]).permutation(images)
    steps = images // size
    return order[: steps * size].reshape(steps, size)


def parts_of(batch: np.ndarray, share: Share, accumulation: int) -> list[np.ndarray]:
    """What one process takes of a global batch, in as many parts as gradients are accumulated."""
    return np.split(np.split(batch, share.processes)[share.rank], accumulation)


def read_ahead(images: Images, parts: list[np.ndarray], workers: int) -> Iterator[np.ndarray]:
    """The images of each part in turn; with workers, the next ones are made while this one is used."""
    if not workers:
        yield from (images.take(part) for part in parts)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting = [pool.submit(images.take, part) for part in parts[:workers]]
        for i in range(len(parts)):
            if i + workers < len(parts):
                waiting.append(pool.submit(images.take, parts[i + workers]))
            yield waiting.pop(0).result()


def with_noise(change: Change | None, deviation: float, seed: int) -> Change:
    """Gaussian noise on the pixels, after `change`; it depends on (seed, epoch, step, part) alone."""

    def noisy(batch: Batch, epoch: int, step: int, part: int) -> Batch:
        batch = batch if change is None else change(batch, epoch, step, part)
        generator = np.random.default_rng([seed, epoch, step, part])
        noise = generator.standard_normal(batch.images.shape, dtype=np.float32) * np.float32(deviation)
        return replace(batch, images=batch.images + to_tensor(noise, batch.images.device))

    return noisy


def to_tensor(array: np.ndarray, device: torch.device | str) -> Tensor:
    """The array as a tensor on a device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)

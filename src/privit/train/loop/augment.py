"""Augmentation with timm's own code, the same for teacher and student, the same after a resume.

What happens to an image depends on (seed, epoch, index of the image); how a batch is mixed on
(seed, epoch, step, part). No state is carried, so an interrupted run goes on with the same images.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image, ImageOps
from timm.data.auto_augment import rand_augment_transform
from timm.data.mixup import Mixup
from timm.data.random_erasing import RandomErasing
from torch import Tensor

from privit.artifact import Preprocessing
from privit.data.images import MODES
from privit.errors import config_error
from privit.spec import Spec
from privit.train.loop.batches import Batch

Augment = Callable[[Batch, int, int, int], Batch]
"""Maps a batch, its epoch, step and part to the batch that teacher and student both see."""

MIX, IMAGE = 0, 1
"""Keep the random numbers of batches apart from those of images."""


@dataclass(frozen=True)
class Augmentation:
    """What is done to training images; nothing by default.

    `mixup` and `cutmix` are the alphas of their Beta distributions, `rand_augment` is timm's text
    ("rand-m9-mstd0.5-inc1"), `random_erasing` and `flip` are probabilities, `shift` is how many
    pixels an image may move. With both mixup and cutmix on, `switch` is the share of cutmix.
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    switch: float = 0.5
    mix_probability: float = 1.0
    label_smoothing: float = 0.0
    rand_augment: str = ""
    random_erasing: float = 0.0
    flip: float = 0.0
    shift: int = 0

    def problems(self) -> list[str]:
        """Everything that is wrong with these settings, in sentences."""
        shares = ("switch", "mix_probability", "label_smoothing", "random_erasing", "flip")
        found = [
            f"{name} is {getattr(self, name)}, not between 0 and 1"
            for name in shares
            if not 0 <= getattr(self, name) <= 1
        ]
        found += [
            f"{name} is {getattr(self, name)}, below zero"
            for name in ("mixup", "cutmix", "shift")
            if not getattr(self, name) >= 0
        ]
        if self.rand_augment and not self.rand_augment.startswith("rand-"):
            found.append(
                f"rand_augment is {self.rand_augment!r}; expected a text such as rand-m9-mstd0.5-inc1"
            )
        return found

    @property
    def changes_images(self) -> bool:
        """Whether single images are changed, before any mixing."""
        return bool(self.rand_augment or self.random_erasing or self.flip or self.shift)

    @property
    def changes_labels(self) -> bool:
        """Whether labels become shares over classes."""
        return bool(self.mixup or self.cutmix or self.label_smoothing)


def make_augmentation(
    config: Augmentation, spec: Spec, preprocessing: Preprocessing, seed: int = 0
) -> Augment | None:
    """The function that augments a batch; None where nothing is to be done."""
    problems = [f"augmentation: {problem}" for problem in config.problems()]
    if config.shift >= spec.image_size:
        problems.append(f"augmentation: shift is {config.shift}, but images have {spec.image_size} pixels")
    if problems:
        raise config_error(problems)
    if config == Augmentation():
        return None
    one = _image_augmentation(config, preprocessing)
    mix = _batch_augmentation(config, spec.classes)

    def augment(batch: Batch, epoch: int, step: int, part: int = 0) -> Batch:
        images, labels = batch.images, batch.labels
        if config.changes_images:
            changed = []
            for image, index in zip(images.cpu(), batch.indices, strict=True):
                with seeded(seed, IMAGE, epoch, int(index)):
                    changed.append(one(image))
            images = torch.stack(changed).to(images.device)
        if config.changes_labels:
            with seeded(seed, MIX, epoch, step, part):
                images, labels = mix(images, labels)
        return replace(batch, images=images, labels=labels)

    return augment


def _image_augmentation(config: Augmentation, preprocessing: Preprocessing) -> Callable[[Tensor], Tensor]:
    """One normalised image (C, S, S) to another."""
    mean = torch.tensor(preprocessing.mean).view(-1, 1, 1)
    std = torch.tensor(preprocessing.std).view(-1, 1, 1)
    policy = _policy(config.rand_augment, preprocessing) if config.rand_augment else None
    erase = (
        RandomErasing(config.random_erasing, mode="pixel", device="cpu") if config.random_erasing else None
    )

    def augment(image: Tensor) -> Tensor:
        if config.flip and random.random() < config.flip:
            image = image.flip(-1)
        if config.shift:
            image = _shifted(image, config.shift)
        if policy is not None:
            pixels = ((image * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)
            # timm's operations expect colour; a grey image takes the way there and back.
            picture = Image.fromarray(pixels.permute(1, 2, 0).expand(-1, -1, 3).contiguous().numpy())
            picture = policy(picture).convert(MODES[preprocessing.channels])
            values = torch.from_numpy(np.array(picture)).view(preprocessing.size, preprocessing.size, -1)
            image = (values.permute(2, 0, 1).float() / 255 - mean) / std
        return erase(image.clone()) if erase is not None else image

    return augment


def _policy(text: str, preprocessing: Preprocessing) -> Callable[[Image.Image], Image.Image]:
    """timm's RandAugment; what moves into view is filled with the mean colour."""
    fill = tuple(round(255 * value) for value in preprocessing.mean)
    settings = {"img_mean": fill if len(fill) == 3 else fill * 3, "translate_const": preprocessing.size * 0.3}
    try:
        policy = rand_augment_transform(text, settings)
    except (AssertionError, ValueError, KeyError) as error:
        raise config_error([f"augmentation: rand_augment {text!r} is not understood by timm"]) from error
    for operation in policy.ops:
        if operation.name.startswith("Posterize"):
            operation.aug_fn = _posterize
    return policy


def _posterize(picture: Image.Image, bits: int, **_: object) -> Image.Image:
    # timm's strongest level keeps no bit at all, which Pillow refuses.
    return ImageOps.posterize(picture, min(max(bits, 1), 8))


def _shifted(image: Tensor, most: int) -> Tensor:
    """The image moved by up to `most` pixels each way, its edge mirrored."""
    down, right = (random.randint(0, 2 * most) for _ in range(2))
    padded = torch.nn.functional.pad(image[None], (most,) * 4, mode="reflect")[0]
    _, height, width = image.shape
    return padded[:, down : down + height, right : right + width]


def _batch_augmentation(
    config: Augmentation, classes: int
) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Images (B, C, S, S) and labels (B,) to mixed images and shares over classes (B, classes)."""
    mixes = config.mixup > 0 or config.cutmix > 0
    mixer = Mixup(
        mixup_alpha=config.mixup,
        cutmix_alpha=config.cutmix,
        prob=config.mix_probability if mixes else 0.0,
        switch_prob=config.switch,
        label_smoothing=config.label_smoothing,
        num_classes=classes,
    )

    def mix(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        even = len(images) // 2 * 2
        shares = _smoothed(labels, classes, config.label_smoothing)
        mixed = images.clone()
        # timm mixes pairs: the last image of an odd batch stays as it is.
        if mixes and even:
            mixed[:even], shares[:even] = mixer(mixed[:even].clone(), labels[:even])
        return mixed, shares

    return mix


def _smoothed(labels: Tensor, classes: int, smoothing: float) -> Tensor:
    shares = torch.full((len(labels), classes), smoothing / classes, device=labels.device)
    return shares.scatter_(1, labels[:, None], 1.0 - smoothing + smoothing / classes)


@contextlib.contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Inside, the global random numbers that timm draws from (Python, numpy, torch) depend on `key` alone.

    Afterwards they are as before.
    """
    python, numpy = random.getstate(), np.random.get_state()
    numbers = np.random.SeedSequence(key).generate_state(3)
    with torch.random.fork_rng(devices=[]):
        random.seed(int(numbers[0]))
        np.random.seed(int(numbers[1]))
        torch.manual_seed(int(numbers[2]))
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)

"""Augmentation depends on seed, epoch and index alone, keeps labels honest, and is off by default."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from privit.artifact import Preprocessing
from privit.errors import RequestError
from privit.presets import PAPER_AUGMENTATION
from privit.spec import Spec, vit_spec
from privit.train.loop.augment import Augment, Augmentation, make_augmentation
from privit.train.loop.batches import Batch

SPEC = vit_spec(16, 4, 8, 1, 1, 5)
PREPROCESSING = Preprocessing(16, 3, (0.5, 0.4, 0.3), (0.2, 0.25, 0.3))

EACH = {
    "mixup": Augmentation(mixup=0.8),
    "cutmix": Augmentation(cutmix=1.0),
    "rand_augment": Augmentation(rand_augment="rand-m9-mstd0.5-inc1"),
    "random_erasing": Augmentation(random_erasing=1.0),
    "flip": Augmentation(flip=0.5),
    "shift": Augmentation(shift=2),
    "all": Augmentation(**PAPER_AUGMENTATION, flip=0.5, shift=2),
}


def batch(count: int = 8, channels: int = 3, first: int = 0) -> Batch:
    """Random pixels, normalised as a loader would."""
    pixels = torch.randint(0, 256, (count, channels, 16, 16), generator=torch.Generator().manual_seed(first))
    mean, std = (torch.tensor(v[:channels]).view(-1, 1, 1) for v in (PREPROCESSING.mean, PREPROCESSING.std))
    labels = torch.arange(count) % 5
    return Batch((pixels / 255 - mean) / std, labels, np.arange(first, first + count))


def made(config: Augmentation, spec: Spec = SPEC, seed: int = 0) -> Augment:
    """The function for a configuration that asks for something."""
    size = {1: replace(PREPROCESSING, channels=1, mean=(0.5,), std=(0.2,)), 3: PREPROCESSING}
    augment = make_augmentation(config, spec, size[spec.channels], seed)
    assert augment is not None
    return augment


def test_by_default_nothing_is_done() -> None:
    assert make_augmentation(Augmentation(), SPEC, PREPROCESSING) is None


@pytest.mark.parametrize("name", EACH)
def test_the_same_seed_epoch_and_step_give_the_same_batch(name: str) -> None:
    first, again = (made(EACH[name])(batch(), 3, 2, 0) for _ in range(2))
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.labels, again.labels)


@pytest.mark.parametrize("name", EACH)
def test_another_epoch_and_another_seed_give_other_images(name: str) -> None:
    images = [
        made(EACH[name], seed=seed)(batch(), epoch, 0, 0).images for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert not torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])


@pytest.mark.parametrize("name", EACH)
def test_the_batch_that_came_in_and_everyone_elses_random_numbers_stay_as_they_were(name: str) -> None:
    given = batch()
    before = given.images.clone(), given.labels.clone()
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # type: ignore[union-attr]
    made(EACH[name])(given, 0, 0, 0)
    assert torch.equal(given.images, before[0])
    assert torch.equal(given.labels, before[1])
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), states[2])


@pytest.mark.parametrize("name", ["rand_augment", "random_erasing", "flip", "shift"])
def test_what_happens_to_an_image_does_not_depend_on_its_batch(name: str) -> None:
    augment, whole = made(EACH[name]), batch(8)
    half = Batch(whole.images[4:], whole.labels[4:], whole.indices[4:])
    assert torch.equal(augment(whole, 1, 0, 0).images[4:], augment(half, 1, 7, 1).images)


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_each_part_of_a_step_is_mixed_in_its_own_way(name: str) -> None:
    augment = made(EACH[name])
    assert not torch.equal(augment(batch(), 0, 0, 0).images, augment(batch(), 0, 0, 1).images)


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_mixed_labels_are_shares_that_sum_to_one(count: int) -> None:
    mixed = made(EACH["all"])(batch(count), 0, 0, 0)
    assert mixed.labels.shape == (count, 5)
    assert (mixed.labels >= 0).all()
    torch.testing.assert_close(mixed.labels.sum(1), torch.ones(count))


def test_mixup_labels_say_how_much_of_each_image_is_seen() -> None:
    given = batch()
    mixed = made(EACH["mixup"])(given, 0, 0, 0)
    share = solve_share(mixed.images[0], given.images[0], given.images[7])
    expected = torch.zeros(5)
    expected[given.labels[0]] += share
    expected[given.labels[7]] += 1 - share
    torch.testing.assert_close(mixed.labels[0], expected, atol=1e-4, rtol=0)


def test_cutmix_labels_say_how_much_area_of_each_image_is_seen() -> None:
    given = batch()
    mixed = made(EACH["cutmix"])(given, 0, 0, 0)
    kept = float((mixed.images[0] == given.images[0]).all(0).float().mean())
    assert 0 < kept < 1
    assert mixed.labels[0, given.labels[0]] == pytest.approx(kept, abs=0.02)
    assert mixed.labels[0, given.labels[7]] == pytest.approx(1 - kept, abs=0.02)


def test_smoothing_alone_keeps_the_images() -> None:
    given = batch()
    smoothed = made(Augmentation(label_smoothing=0.1))(given, 0, 0, 0)
    assert torch.equal(smoothed.images, given.images)
    assert smoothed.labels[0].tolist() == pytest.approx([0.92, 0.02, 0.02, 0.02, 0.02])


def test_a_sure_flip_mirrors_every_image() -> None:
    given = batch()
    flipped = made(Augmentation(flip=1.0))(given, 0, 0, 0)
    assert torch.equal(flipped.images, given.images.flip(-1))
    assert torch.equal(flipped.labels, given.labels)


def test_erasing_leaves_most_of_an_image() -> None:
    given = batch()
    same = (made(EACH["random_erasing"])(given, 0, 0, 0).images == given.images).float().mean((1, 2, 3))
    assert (same < 1).all()
    assert (same > 0.6).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_augmented_images_stay_within_the_range_of_pixels(channels: int) -> None:
    spec = replace(SPEC, channels=channels)
    config = Augmentation(rand_augment="rand-m9-n3", flip=0.5, shift=3)
    preprocessing = Preprocessing(16, channels, (0.5,) * channels, (0.25,) * channels)
    augment = make_augmentation(config, spec, preprocessing)
    assert augment is not None
    pixels = torch.rand(6, channels, 16, 16)
    found = augment(Batch((pixels - 0.5) / 0.25, torch.zeros(6, dtype=torch.long), np.arange(6)), 0, 0, 0)
    assert found.images.shape == pixels.shape
    assert found.images.abs().max() <= 2 + 1e-6


@pytest.mark.parametrize("text", ["rand-m10-n8-mstd0.5-inc1", "rand-m10-n8", "rand-m20-n8-mmax30-inc1"])
def test_the_strongest_levels_still_give_pictures(text: str) -> None:
    augment = made(Augmentation(rand_augment=text))
    for epoch in range(20):
        assert augment(batch(), epoch, 0, 0).images.isfinite().all()


def test_all_problems_come_in_one_error() -> None:
    wrong = Augmentation(mixup=-1, flip=2, shift=16, rand_augment="strong")
    with pytest.raises(RequestError) as caught:
        make_augmentation(wrong, SPEC, PREPROCESSING)
    for part in ("mixup is -1", "flip is 2", "shift is 16, but images have 16 pixels", "'strong'"):
        assert part in caught.value.message


def test_a_text_that_timm_does_not_understand_is_refused() -> None:
    with pytest.raises(RequestError, match="not understood by timm"):
        make_augmentation(Augmentation(rand_augment="rand-m9-x7"), SPEC, PREPROCESSING)


def solve_share(mixed: Tensor, first: Tensor, second: Tensor) -> float:
    """The least-squares s with mixed = s first + (1 - s) second."""
    direction = (first - second).flatten()
    return float((mixed - second).flatten() @ direction / (direction @ direction))

"""The best known way needs no tuning for small and large data."""

from __future__ import annotations

import pytest

from privit.config import check_config
from privit.presets import best_finetune, best_teacher


@pytest.mark.parametrize("images", [1, 60, 1_293, 8_000, 45_000, 1_200_000])
@pytest.mark.parametrize("fresh", [True, False])
def test_its_settings_are_possible_for_any_number_of_images(images: int, fresh: bool) -> None:
    teacher = best_teacher(images, fresh, photographs=True)
    check_config(teacher)
    check_config(best_finetune(images, teacher.learning_rate))


def test_fewer_images_are_seen_more_often() -> None:
    epochs = [best_finetune(images, 1e-4).epochs for images in (100, 1_293, 8_000, 45_000)]
    assert epochs == [60, 19, 3, 2]
    assert [best_teacher(n, False, True).epochs for n in (100, 8_000, 45_000)] == [20, 4, 2]


def test_a_student_learns_at_half_its_teacher_s_rate_and_is_clipped() -> None:
    found = best_finetune(8_000, best_teacher(8_000, fresh=False, photographs=True).learning_rate)
    assert (found.learning_rate, found.operator_rate, found.gradient_clip) == (5e-5, 0.1, 1.0)


def test_only_photographs_are_flipped() -> None:
    assert best_teacher(8_000, False, photographs=True).augmentation == {"flip": 0.5}
    assert best_teacher(1_293, True, photographs=False).augmentation == {}

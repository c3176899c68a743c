"""What all stages of a training share."""

from __future__ import annotations

from privit.train.stages import compute_with, threads


def test_torch_computes_with_the_threads_it_is_given() -> None:
    before = threads()
    try:
        compute_with(before + 1)
        assert threads() == before + 1
    finally:
        compute_with(before)
    assert threads() == before

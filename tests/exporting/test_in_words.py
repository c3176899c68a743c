"""What an export tells a person."""

from __future__ import annotations

from privit.exporting import SHOWN, in_words
from privit.serve.measure.exported import Tried


def tried(unproven: int) -> Tried:
    return Tried(100, 0.02, 0, {}, tuple(f"place {number}" for number in range(unproven)), (), 0)


def test_a_proven_program_says_how_far_a_logit_may_be_off_and_nothing_of_proofs() -> None:
    assert set(in_words(tried(0))) == {"a logit may be off by"}


def test_a_few_unproven_places_are_all_named() -> None:
    said = in_words(tried(SHOWN))["not proven"]

    assert f"place {SHOWN - 1}. There" in said
    assert "more" not in said


def test_of_many_unproven_places_the_first_are_named_and_the_rest_counted() -> None:
    said = in_words(tried(44))["not proven"]

    assert said.startswith("place 0; place 1; place 2; and 41 more. There the guard is a check")
    assert f"place {SHOWN}" not in said

"""Every error says what was found and what to do, and exits as the command line promises."""

from __future__ import annotations

import inspect

import pytest

from privit import errors
from privit.errors import MissingExtra, PrivitError, RequestError, WorkError, config_error, refusals

ALL = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, PrivitError)]


def test_the_hint_follows_the_message() -> None:
    error = RequestError("budget is 300, but the model has 288 GELU sites", "give at most 288")
    assert str(error) == "budget is 300, but the model has 288 GELU sites\nhint: give at most 288"


def test_without_a_hint_only_the_message_is_shown() -> None:
    assert str(WorkError("the disk is full")) == "the disk is full"


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind is not errors.OutsideRanges])
def test_wrong_requests_exit_with_2_and_failed_work_with_1(kind: type[PrivitError]) -> None:
    assert kind.exit_code == (2 if issubclass(kind, RequestError) else 1)


def test_an_answer_that_cannot_be_right_has_an_exit_code_of_its_own() -> None:
    assert errors.OutsideRanges.exit_code == 3


@pytest.mark.parametrize("kind", ALL)
def test_the_tree_on_top_of_the_file_names_every_error(kind: type[PrivitError]) -> None:
    assert kind.__name__ in (errors.__doc__ or "")


def test_a_missing_extra_gives_the_command_that_installs_it() -> None:
    assert "pip install 'privit[serve]'" in str(MissingExtra("spu", "serve"))


def test_config_problems_are_reported_together() -> None:
    text = str(config_error(["epochs is 0", "seed is -1"]))
    assert "2 problems" in text
    assert "epochs is 0" in text
    assert "seed is -1" in text


def test_what_a_check_refuses_is_a_sentence_and_a_bug_is_none() -> None:
    def refuses() -> None:
        raise RequestError("no such thing", "ask for another")

    assert refusals(lambda: 1) == []
    assert refusals(refuses) == ["no such thing"]
    with pytest.raises(ZeroDivisionError):
        refusals(lambda: 1 // 0)

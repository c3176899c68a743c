"""A flag that is given twice is never forgotten without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from privit.cli import main
from privit.cli.main import VERBS
from privit.cli.repeated import joined_flags
from privit.errors import RequestError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("finetune run --set a=1 --seed 1 --set b=2 c=3", "finetune run --set a=1 b=2 c=3 --seed 1"),
        ("finetune run --set=a=1 --set=b=2", "finetune run --set=a=1 b=2"),
        ("search run --max-bytes 1e6 --max_bytes 2e6 --json", "search run --max-bytes 1e6 2e6 --json"),
        ("search --keep 0.1 --out a run --keep -0.2", "search --keep 0.1 -0.2 --out a run"),
        (
            "calibrate out --protocol aby3 --quick --protocol cheetah",
            "calibrate out --protocol aby3 cheetah --quick",
        ),
        ("cost --model a --seed 1", "cost --model a --seed 1"),
        ("query --model a -- --model --model", "query --model a -- --model --model"),
        ("nonsense --a 1 --a 2", "nonsense --a 1 --a 2"),
        ("", ""),
    ],
)
def test_the_values_of_a_list_are_joined(given: str, expected: str) -> None:
    assert joined_flags(given.split(), VERBS) == expected.split()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_refuses_a_second_value_where_one_is_held(verb: str) -> None:
    flag = {"certs": "--out", "calibrate": "--quick"}.get(verb, "--json")
    with pytest.raises(RequestError, match=f"{flag} was given more than once"):
        joined_flags([verb, flag, "--certs", "a", flag], VERBS)


def test_both_clients_get_a_certificate(tmp_path: Path) -> None:
    assert main(["certs", str(tmp_path / "certs"), "--client", "alice", "--client", "bob"]) == 0
    assert {"alice", "bob"} <= {path.name for path in (tmp_path / "certs").iterdir()}


def test_every_setting_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finetune", "nowhere", "--set", "colour=1", "--set", "epochs=2"]) == 2
    assert "has no setting colour" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["cost", "--model", "vit_tiny_patch16_224", "--model", "deit"], ["cost", "--seed=1", "--seed", "2"]],
)
def test_a_second_value_exits_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 2
    assert "was given more than once" in capsys.readouterr().err

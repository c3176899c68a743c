"""The command line: exit codes, wording, JSON, help."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from privit.cli import main
from privit.cli.main import log_path

GOLDEN = Path(__file__).parent / "golden"
TINY = ["--model", "vit_tiny_patch16_224"]
PAPER_PLAN = [
    *TINY,
    "--kept-gelu-tokens",
    "127,1,41,6,5,6,6,4,1,1,1,1",
    "--kept-softmax-rows",
    "381,393,205,0,2,0,2,3,3,3,3,3",
]


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_cost_prints_exactly_one_json_object(capsys):
    code, out, _ = run(capsys, "cost", *PAPER_PLAN, "--json")
    assert code == 0
    result = json.loads(out)
    assert result["relu_ops"] == 110_565_052
    assert result["measured_on"] == "estimated"


def test_cost_explains_what_to_remove_next(capsys):
    code, out, _ = run(capsys, "cost", *PAPER_PLAN, "--explain")
    assert code == 0
    assert "what to remove next" in out
    assert out.index("layer 0") < out.index("layer 3")


@pytest.mark.parametrize(("unit", "shown"), [("bytes", "MB"), ("rounds", "layer 0"), ("seconds", " s")])
def test_cost_explains_in_every_unit_of_the_engine(capsys, unit, shown):
    spu = ["--profile", "spu", "--protocol", "semi2k-benchmark", "--network", "wan", "--unit", unit]
    code, out, _ = run(capsys, "cost", *PAPER_PLAN, "--explain", *spu)
    assert code == 0
    assert shown in out[out.index("what to remove next") :]


def test_a_time_line_of_processes_is_refused_before_anything_runs(capsys, tmp_path):
    code, _, err = run(capsys, "bench", *PAPER_PLAN, "--network", "lan", "--figure", tmp_path / "a.png")
    assert code == 2
    assert "leave --network away" in err


def test_cost_draws_its_breakdown(capsys, tmp_path):
    figure = tmp_path / "cost.png"
    code, _, err = run(capsys, "cost", *PAPER_PLAN, "--figure", figure)
    assert code == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert str(figure) in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cost"], "give an artifact's folder or --model"),
        (["cost", "--model", "resnet50"], "no architecture is called 'resnet50'"),
        (["cost", *TINY, "--kept-gelu-tokens", "1,2"], "2 gelu counts given, but the model has 12 layers"),
        (["cost", *TINY, "--kept-gelu-tokens", "many"], "is not a list of counts"),
        (["cost", *TINY, "--profile", "guess"], "no cost profile is called 'guess'"),
        (["teacher", "vit:width=8", "--data", "digits", "--preset", "none"], "no preset is called 'none'"),
        (["search", "nowhere", "--keep", "0.1"], "nowhere is not a run"),
        (["search", "nowhere", "--keep", "0.1", "--gelu-budget", "3"], "--keep was given beside"),
        (["finetune", "nowhere", "--set", "epochs"], "'epochs' is not a setting"),
        (["finetune", "nowhere", "--set", "colour=1"], "has no setting colour"),
        (["export", "nowhere"], "nowhere is not a run"),
        (["eval", "nowhere"], "nowhere is not a privit artifact"),
        (["serve", "nowhere", "--protocol", "semi2k-benchmark"], "could read the image"),
    ],
)
def test_a_wrong_request_exits_2_with_what_was_found(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert words in err
    assert out == ""
    assert "Traceback" not in err


def test_an_unknown_verb_exits_2(capsys):
    assert run(capsys, "nonsense")[0] == 2


def test_a_full_disk_is_said_without_a_traceback(capsys, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    monkeypatch.setattr("privit.cost.estimate.estimate", full)
    code, _, err = run(capsys, "cost", *TINY)
    assert code == 1
    assert "error: No space left on device" in err
    assert "hint: free some space" in err


def test_what_is_unexpected_goes_to_the_log_and_not_to_the_user(capsys, monkeypatch, tmp_path):
    def broken(*_):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setenv("PRIVIT_LOG", str(tmp_path / "privit.log"))
    monkeypatch.setattr("privit.cost.estimate.estimate", broken)
    code, _, err = run(capsys, "cost", *TINY)
    assert code == 1
    assert "secret detail" not in err
    assert "secret detail" in log_path().read_text()


def test_ctrl_c_says_how_to_go_on(capsys, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("privit.cost.estimate.estimate", stopped)
    code, _, err = run(capsys, "cost", *TINY)
    assert code == 130
    assert "the same command goes on" in err


def test_a_missing_extra_names_the_pip_command():
    # In a process of its own: modules that are imported anew are others than those that later tests hold.
    start = "import sys; sys.modules['spu'] = None; import privit.cli"
    script = f"{start}; sys.exit(privit.cli.main(['serve', 'nowhere']))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "pip install 'privit[serve]'" in ended.stderr


def test_the_help_lists_every_verb():
    shown = subprocess.run(
        [sys.executable, "-m", "privit", "--help"], capture_output=True, text=True, check=True, env=_plain()
    ).stdout
    golden = GOLDEN / "help.txt"
    assert shown == golden.read_text(), "if the change is wanted, write the new help to tests/cli/golden"


def test_the_command_line_starts_without_torch_or_jax():
    script = (
        "import sys, privit.cli; print([m for m in ('torch', 'jax', 'spu', 'datasets') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def _plain():
    import os

    return os.environ | {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}

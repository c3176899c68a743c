"""Every command that README and docs show is one that the command line takes: its verb, flags and kinds."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privit.cli.main import VERBS, main

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks" / "README.md")
SHOWN = re.compile(r"^    (?:[A-Z_]+=\S+ )*(?:torchrun .* -m |accelerate launch .* -m )?privit ([a-z].*)$")


def shown(page: Path) -> list[str]:
    """The arguments of each command in the code blocks of a page, lines that go on joined."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = [match[1] for line in text.splitlines() if (match := SHOWN.match(line))]
    return [command for command in found if "..." not in command]


COMMANDS = [(page.relative_to(ROOT), command) for page in PAGES for command in shown(page)]


def test_there_are_commands_to_check() -> None:
    verbs = {command.split()[0] for _, command in COMMANDS}
    assert len(COMMANDS) > 40
    assert {"build", "teacher", "search", "finetune", "export", "serve", "query", "page", "cost"} <= verbs


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda value: str(value))
def test_the_command_line_takes_what_the_docs_show(
    page: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[str] = []

    def noting(name: str, function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def note(*_: Any, **__: Any) -> None:
            called.append(name)

        return note

    for name, function in list(VERBS.items()):
        monkeypatch.setitem(VERBS, name, noting(name, function))
    words = shlex.split(command, comments=True)
    ends = [words.index(word) for word in (">", "|", "&&", "&", "2>") if word in words]
    arguments = words[: min(ends, default=len(words))]
    assert main(arguments) == 0, capsys.readouterr().err
    assert called == [arguments[0]]

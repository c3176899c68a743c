"""What others named is shown as they named it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from privit.cli.output import show_fields, show_rows

NAMES = ["[red]cat[/red].png", "a[/b].png", "[bold]", "tail\\", ":dog:", "[link=x]", "[0]", "@[1;2]"]


@pytest.mark.parametrize("name", NAMES)
def test_marks_in_a_name_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str], name: str) -> None:
    show_rows(f"title {name}", (f"column {name}",), [(f"cell {name}",)])
    show_fields(f"heading {name}", {f"field {name}": f"value {name}", "list": [name]})
    shown = " ".join(capsys.readouterr().out.split())
    for place in ("title", "column", "cell", "heading", "field", "value", "list"):
        assert f"{place} {name}" in shown, place


def test_a_name_that_is_not_utf_8_is_shown(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9[/x]"
    shown = subprocess.run(
        [sys.executable, "-m", "privit", "certs", folder],
        capture_output=True,
        env=os.environ | {"COLUMNS": "300"},
    )
    assert shown.returncode == 0, shown.stderr
    assert rb"caf\udce9[/x]" in shown.stdout

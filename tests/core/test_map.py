"""docs/map.md points at what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = [line for line in (ROOT / "docs" / "map.md").read_text().splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_file_that_the_map_names_is_there(row: str) -> None:
    named = [name for name in re.findall(r"`([^`]+)`", row.split("|")[2]) if re.search(r"\.py$|/$", name)]
    assert named, "the row names no file"
    room = ""
    for name in named:
        found = [ROOT / "src" / "privit" / room / name, ROOT / "src" / "privit" / name, ROOT / name]
        assert any(path.exists() for path in found), name
        room = str(Path(name).parent) if "/" in name else room


def test_the_map_answers_twenty_questions_at_least() -> None:
    assert len(ROWS) >= 20


def test_no_folder_has_more_files_than_can_be_seen_at_once() -> None:
    folders = {path.parent for path in (ROOT / "src" / "privit").rglob("*.py")}
    crowded = {str(f): len(list(f.glob("*.py"))) for f in folders if len(list(f.glob("*.py"))) > 14}
    assert crowded == {}

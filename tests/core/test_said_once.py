"""Nothing in the source is written twice: no ten lines of code stand in two places."""

from __future__ import annotations

import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "privit"
LINES = 10
PASSED_OVER = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and what is on them, without comments, blank lines, imports and lone brackets."""
    lines: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in PASSED_OVER and token.string.strip():
            lines[token.start[0]].append(token.string)
    for number, words in sorted(lines.items()):
        if words[0] not in ("import", "from") and any(word[0].isalnum() or word[0] == "_" for word in words):
            yield number, " ".join(words)


def repeated(files: dict[str, str]) -> list[str]:
    """Places whose next ten lines of code stand elsewhere, too."""
    seen: dict[tuple[str, ...], str] = {}
    found = []
    for name, text in files.items():
        lines = list(code_lines(text))
        for start in range(len(lines) - LINES + 1):
            run = tuple(line for _, line in lines[start : start + LINES])
            place = f"{name}:{lines[start][0]}"
            if run in seen:
                found.append(f"{place} says what {seen[run]} says")
            else:
                seen[run] = place
    return found


def test_no_ten_lines_of_code_stand_in_two_places() -> None:
    files = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    assert repeated(files) == []


def test_ten_lines_that_stand_twice_would_be_found() -> None:
    lines = "\n".join(f"value_{i} = {i}" for i in range(LINES))
    assert repeated({"a.py": lines, "b.py": f"# again\n\n{lines}\n"}) == ["b.py:3 says what a.py:1 says"]

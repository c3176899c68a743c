"""What the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def teacher_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a tiny teacher on digits."""
    from tiny import tiny_teacher

    return tiny_teacher(tmp_path_factory.mktemp("runs"))

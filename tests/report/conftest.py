"""Reports that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_files import full_sweep, small_sweep

from privit.report.render.write import write_report


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with every kind of experiment."""
    return full_sweep(tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with one comparison of methods."""
    return small_sweep(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def written(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the small sweep."""
    out = tmp_path_factory.mktemp("report")
    write_report(small, out, protocol="semi2k-benchmark")
    return out

"""What all tests share: where the data beside the repository is, and a tiny model with its plan."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

# Two cores are shared by everything that runs at the same time; more threads only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A test that asked the hub would depend on the network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Virtual machines may announce AMX and not run it, which ends the process that multiplies in bf16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Half of what a test in the clear takes is compiling one small operation after the other: quickly, and once
# for all workers, which find the folder in the environment that the first process leaves them.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.mkdtemp(prefix="privit-tests-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": compiled,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

from privit.artifact import Preprocessing, Public
from privit.plan import Plan, all_weight_shapes, plan_from_counts
from privit.spec import Spec, vit_spec

# Where nothing compiled is kept, each of some hundred processes would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


SLOW = (
    "building",
    "cli/asking",
    "cli/test_budgeting.py",
    "cli/test_export.py",
    "cli/test_fit.py",
    "cli/test_ranges.py",
    "cli/test_search.py",
    "cli/test_verbs.py",
    "cost/budgets/test_ladder.py",
    "page",
    "program/test_adding_an_operator.py",
    "program/test_guard.py",
    "program/test_operations.py",
    "serve/compile",
    "serve/engine/test_simulator.py",
    "serve/measure",
    "serve/model/test_guard.py",
    "serve/model/test_images.py",
    "serve/model/test_parity.py",
    "serve/model/test_rewrites.py",
    "serve/parties",
    "sweep/recipe/test_cost_budgets.py",
    "sweep/run",
    "train/baselines",
    "train/descent",
    "train/loop",
    "train/test_search.py",
)
"""What takes longest, and `make quick` leaves: servers and clients, compiling, sweeps, resumed trainings."""


LONGEST = (
    "serve/parties/test_rough_network.py",
    "cli/test_verbs.py",
    "serve/parties/test_server.py",
    "building",
    "page",
    "train/loop",
    "serve/parties",
    "cli/asking",
    "serve/measure",
    "train/descent",
    "serve",
    "sweep/run",
    "cli",
)
"""What begins first, the longest first: no worker ends with one of these while the other has nothing left."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest first, and marks what `make quick` leaves."""
    tests = Path(__file__).parent
    longest, slow = ([tests / name for name in names] for names in (LONGEST, SLOW))

    @cache  # a file is asked about once, and not for each of its tests
    def place(path: Path) -> tuple[int, bool]:
        within = {path, *path.parents}
        first = next((at for at, folder in enumerate(longest) if folder in within), len(longest))
        return first, not within.isdisjoint(slow)

    items.sort(key=lambda item: place(item.path)[0])
    for item in items:
        if place(item.path)[1]:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of data beside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip("there is no ../shared/data beside the repository")
    return SHARED_DATA


@pytest.fixture
def tiny_spec() -> Spec:
    """A model of 2 blocks and 5 tokens for 8 x 8 grey images."""
    return vit_spec(image_size=8, patch_size=4, width=8, depth=2, heads=2, classes=3, channels=1)


@pytest.fixture
def tiny_plan(tiny_spec: Spec) -> Plan:
    """A plan that keeps some sites of either kind and uses a fitted stand-in."""
    return plan_from_counts(tiny_spec, [2, 1], [3, 0], stand_in={"gelu": "quadratic"})


@pytest.fixture
def tiny_public(tiny_spec: Spec) -> Public:
    """The public part of an artifact of the tiny model."""
    preprocessing = Preprocessing(8, 1, (0.5,), (0.25,))
    return Public(tiny_spec, preprocessing, ("a", "b", "c"), {"residual": 3.5}, {"seed": 0})


@pytest.fixture
def tiny_weights(tiny_spec: Spec, tiny_plan: Plan) -> dict[str, np.ndarray]:
    """Random weights for the tiny model and its plan."""
    rng = np.random.default_rng(0)
    shapes = all_weight_shapes(tiny_spec, tiny_plan)
    return {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}

"""Threads are settled before a library that reads them is loaded, and never against the user's word."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from privit.machine import threads


def seen(program: str, **environment: str) -> dict[str, str]:
    """What a fresh process printed, started without any setting of OpenMP but the given ones."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean | environment, stdout=subprocess.PIPE, check=True
    )
    return dict(json.loads(done.stdout))


SHOW = "import json, os, privit; print(json.dumps(dict(os.environ)))"


def test_importing_privit_makes_threads_sleep_if_they_wait_for_long() -> None:
    found = seen(SHOW)
    assert (found["OMP_WAIT_POLICY"], found["GOMP_SPINCOUNT"]) == ("passive", "500")


def test_what_a_user_has_set_stays() -> None:
    found = seen(SHOW, OMP_WAIT_POLICY="active", OMP_THREAD_LIMIT="3")
    assert (found["OMP_WAIT_POLICY"], found["OMP_THREAD_LIMIT"]) == ("active", "3")
    assert "GOMP_SPINCOUNT" not in found
    assert seen(SHOW, GOMP_SPINCOUNT="5")["GOMP_SPINCOUNT"] == "5"


def test_privit_limits_no_threads_of_the_process_that_imports_it() -> None:
    assert "OMP_THREAD_LIMIT" not in seen(SHOW)


def test_engines_that_share_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(threads.LIMIT, raising=False)
    monkeypatch.setattr(threads, "cores", lambda: 8)
    assert threads.engine_environment(1)[threads.LIMIT] == "8"
    assert threads.engine_environment(3)[threads.LIMIT] == "2"
    assert threads.engine_environment(20)[threads.LIMIT] == "1"


def test_a_users_limit_is_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.LIMIT, "5")
    assert threads.engine_environment(4)[threads.LIMIT] == "5"


def test_jobs_that_train_side_by_side_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 6)
    assert threads.training_environment(4)["OMP_NUM_THREADS"] == "1"
    assert threads.training_environment(2) == threads.WAITING | {"OMP_NUM_THREADS": "3"}


LEVELS = """
import ctypes, json, os, privit
import spu  # loads the library
from privit.machine import threads
threads.cores = lambda: {cores}
library = ctypes.CDLL("libgomp.so.1")
before = library.omp_get_max_active_levels()
with threads.engine_in_this_thread(2):
    inside = library.omp_get_max_active_levels()
print(json.dumps([("inside", inside), ("kept", library.omp_get_max_active_levels() == before)]))
"""


def test_an_engine_beside_others_in_a_process_multiplies_in_its_own_thread_alone() -> None:
    assert seen(LEVELS.format(cores=2)) == {"inside": 0, "kept": True}


def test_an_engine_with_cores_enough_keeps_its_threads() -> None:
    assert seen(LEVELS.format(cores=8))["inside"] != 0


def test_a_users_limit_is_not_replaced_inside_a_process() -> None:
    assert seen(LEVELS.format(cores=2), OMP_THREAD_LIMIT="2")["inside"] != 0

"""How many threads the engine and the training use, and how these wait: decided here, once.

OpenMP reads the environment when it is loaded, so `import privit` settles how threads wait, before torch
or the engine can be loaded, in spawned processes too. What a user has set is left as it is.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

POLICY = "OMP_WAIT_POLICY"
WAITING = {POLICY: "passive", "GOMP_SPINCOUNT": "500"}
"""Threads that wait in a loop take the core that the awaited one may need: with another process on one of
two cores, a training step takes three times as long. Threads that sleep at once take long to wake: on two
idle cores a step takes a fifth longer or more. So they wait for some microseconds in a loop, which GNU's
OpenMP takes from its own setting, and then sleep. docs/engine.md has the figures."""
LIMIT = "OMP_THREAD_LIMIT"
PRODUCT_THREADS = 4
"""Threads that the engine asks for in every matrix product of shares, whatever the machine has. They wait
for each other in a loop of their own that no setting reaches; only fewer threads do."""
_LIMITS = (LIMIT, "OMP_MAX_ACTIVE_LEVELS")


def wait_quietly() -> None:
    """Lets this process's OpenMP threads, and those of processes it starts, sleep if they wait for long."""
    if POLICY in os.environ:
        return
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)


def cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_of_cores(sharing: int) -> int:
    """Threads for one of so many that compute on this machine at the same time."""
    return max(1, cores() // max(1, sharing))


def engine_environment(engines: int) -> dict[str, str]:
    """The environment of a process with one engine, on a machine that runs so many at the same time."""
    return WAITING | {LIMIT: str(share_of_cores(engines))} | os.environ


def training_environment(jobs: int) -> dict[str, str]:
    """What a process that trains beside others is started with."""
    return WAITING | {"OMP_NUM_THREADS": str(share_of_cores(jobs))}


@contextmanager
def engine_in_this_thread(engines: int) -> Iterator[None]:
    """Runs one of so many engines of this process without threads that would get in each other's way.

    For engines beside torch in one process, where the environment was read long ago and must not bind
    the training. OpenMP knows all or nothing here: unless there are cores for every engine's threads,
    products run in the calling thread alone.
    """
    library = None if _is_settled(engines) else _openmp()
    if library is None:
        yield
        return
    before = library.omp_get_max_active_levels()
    library.omp_set_max_active_levels(0)
    try:
        yield
    finally:
        library.omp_set_max_active_levels(before)


def _is_settled(engines: int) -> bool:
    return share_of_cores(engines) >= PRODUCT_THREADS or any(name in os.environ for name in _LIMITS)


def _openmp() -> ctypes.CDLL | None:
    """The OpenMP library that is loaded already, torch's or the system's; None where there is another."""
    try:
        return ctypes.CDLL("libgomp.so.1")
    except OSError:
        return None

"""Seconds and processor time with this version's threads and program text, against those before.

    python -m benchmarks.threads                    # every case, three turns
    python -m benchmarks.threads --case deit --turns 5
    python -m benchmarks.threads --case deit --busy # with one core taken by another process

The ways take turns, each in a fresh process, so that whatever else the machine does meets all of them; the
figures are medians over turns. `before` waits in loops, has every thread the engine asks for and reads the
program as compiled; `limit` is that with OMP_THREAD_LIMIT=1; `now` is what a user gets who sets nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.predicted import plan_of, ranges_of
from privit.artifact import Preprocessing, Public
from privit.machine.threads import LIMIT, POLICY, WAITING
from privit.program.choices import batch_for
from privit.spec import Spec, vit_spec

ACTIVE = {POLICY: "active"}
WAYS: dict[str, dict[str, str]] = {
    "before": ACTIVE | {LIMIT: "1024"},
    "limit": ACTIVE | {LIMIT: "1"},
    "now": {},
    "beside": {},
}
"""The last is `now` with one core taken by another process."""
CASES = {"deit": "semi2k-benchmark", "digits": "aby3", "digits-cheetah": "cheetah", "step": ""}
TARGETS = {"deit": 0.35, "digits": 0.65}
MOST_BESIDE = 2.0
"""Times the idle seconds that a training step may take beside a busy process."""
RUNS = 3


def spec_of(case: str) -> Spec:
    """DeiT-Tiny at 112 px, or the model of the digits."""
    return (
        vit_spec(112, 16, 192, 12, 3, classes=10)
        if case == "deit"
        else vit_spec(16, 4, 64, 4, 4, classes=10, channels=1)
    )


def queries(case: str, as_compiled: bool) -> Callable[[], None]:
    """A function that runs one query with all parties in this process."""
    from privit.serve.compile.compile import client_values, compile_program, server_values
    from privit.serve.engine.protocols import protocol
    from privit.serve.engine.simulator import Simulator
    from privit.serve.measure.bench import random_image, random_weights

    spec = spec_of(case)
    plan = plan_of(spec, "searched")
    names = tuple(str(i) for i in range(spec.classes))
    preprocessing = Preprocessing(spec.image_size, spec.channels, (0.5,), (0.5,))
    public = Public(spec, preprocessing, names, ranges_of(spec, "searched"))
    program = compile_program(public, plan, batch=batch_for(CASES[case], 1))
    if as_compiled:
        program.executable.code = program.code.encode()
    values = server_values(public, plan, random_weights(public, plan, 0))
    simulator = Simulator(protocol(CASES[case])).__enter__()
    simulator.give(program.inputs, values | client_values(public, random_image(public, 0)))
    return lambda: simulator.run(program.executable) and None


def child(case: str, way: str) -> None:
    """Prints the least wall clock and processor time of a few runs."""
    if case == "step":
        from benchmarks.search_step import make_step

        work = make_step("search", 112, 32, 10, "fitted")
    else:
        work = queries(case, as_compiled=way in ("before", "limit"))
    found = []
    for _ in range(RUNS + 1):
        started, processor = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - started, time.process_time() - processor))
    seconds, processors = zip(*found[1:], strict=True)
    print(json.dumps({"seconds": min(seconds), "processor": min(processors)}))
    sys.stdout.flush()
    os._exit(0)


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """One core taken by another process."""
    if not wanted:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            yield
        finally:
            other.kill()


def turn(case: str, way: str) -> dict[str, float]:
    """One way in a fresh process."""
    ours = {name: value for name, value in os.environ.items() if name not in (LIMIT, *WAITING)}
    command = [sys.executable, "-m", "benchmarks.threads", "--case", case, "--child", way]
    done = subprocess.run(command, env=ours | WAYS[way], stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(case: str, turns: int) -> dict[str, Any]:
    """Medians of every way, and their ratios to `before`."""
    ways = [way for way in WAYS if way not in (("limit",) if case == "step" else ("beside",))]
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(turns):
        for way in ways:
            with busy(way == "beside"):
                found[way].append(turn(case, way))
    result: dict[str, Any] = {}
    for way in ways:
        for clock in ("seconds", "processor"):
            result.setdefault(way, {})[clock] = statistics.median(one[clock] for one in found[way])
            ratios = [
                one[clock] / first[clock] for one, first in zip(found[way], found["before"], strict=True)
            ]
            result[way][f"{clock}_ratio"] = statistics.median(ratios)
    return result


def main() -> int:
    """Prints a table; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=tuple(CASES))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--child", choices=tuple(WAYS))
    wanted = parser.parse_args()
    if wanted.child:
        child(wanted.case, wanted.child)
    missed = 0
    print(f"load before: {os.getloadavg()[0]:.1f}{', and a busy core' if wanted.busy else ''}")
    print(f"{'case':16}{'way':9}{'seconds':>9}{'of before':>11}{'processor':>11}{'of before':>11}")
    for case in [wanted.case] if wanted.case else CASES:
        with busy(wanted.busy):
            found = compare(case, wanted.turns)
        for way, entry in found.items():
            print(
                f"{case:16}{way:9}{entry['seconds']:9.2f}{entry['seconds_ratio']:11.2f}"
                f"{entry['processor']:11.2f}{entry['processor_ratio']:11.2f}",
                flush=True,
            )
        missed += case in TARGETS and found["now"]["seconds_ratio"] > TARGETS[case]
        if "beside" in found:
            times = found["beside"]["seconds"] / found["now"]["seconds"]
            print(f"beside a busy process: {times:.2f} times the seconds of an idle machine")
            missed += times > MOST_BESIDE
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

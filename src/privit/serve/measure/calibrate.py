"""Measures every operation at a few sizes and writes the tables from which costs are predicted."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np

from privit.cost.spu.shapes import round_features, second_features, traffic_features
from privit.cost.spu.table import Entry, Table, fit, fit_error, read_table, save_table
from privit.errors import RequestError
from privit.serve.engine.protocols import Protocol, protocol
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.ciphertexts import REFILL, fit_ciphertexts, measure_refill
from privit.serve.measure.link import measure_link
from privit.serve.measure.probes import PROBES, WITH_COMPARISON, Sample, probe, typical
from privit.serve.measure.seconds import fit_seconds

Clock = Literal["wall", "processor"]
Samples = dict[str, list[Sample]]
Progress = Callable[[str, int, int], None]

REPEATS = 5
NOTHING, NOTHING_REPEATS = "add", 15
LEAST_SECONDS = 1e-4
MATMULS = (
    (1, 64, 10),
    (17, 64, 192),
    (17, 16, 17),
    (17, 17, 16),
    (50, 192, 192),
    (50, 192, 576),
    (197, 192, 576),
)
# On CHEETAH the time of a product depends on how it is cut: long, wide and small ones tell that apart.
CHEETAH_MATMULS = (
    *MATMULS[:5],
    (13, 96, 48),
    (9, 384, 96),
    (26, 48, 48),
    (20, 320, 80),
    (9, 128, 512),
    (5, 64, 64),
    (33, 24, 33),
    (2, 128, 128),
    (65, 96, 96),
)
MAXIMA = ((1, 2), (7, 17), (10, 50), (30, 65))
VALUES = ((8,), (256,), (4096,), (30000,))
# With CHEETAH a product needs a whole ciphertext: small sizes tell what does not depend on that.
CHEETAH_VALUES = ((8,), (64,), (256,), (4096,))


# Products with a bit have the same two of three parties send more, always.
FIXED_PARTS = ("compare_public", "relu", "clip", "count", "joined", "max")


def calibrate(
    protocols: Sequence[str],
    out: Path,
    quick: bool = False,
    clock: Clock = "wall",
    progress: Progress | None = None,
) -> list[Path]:
    """Writes one table per protocol into the folder `out`, or one alone into a file of that name.

    `quick` leaves out the largest sizes. With the processor's clock a busy machine can be used: the time
    of all parties together is divided by the cores they can use, which is less exact.
    """
    one_file = out.suffix == ".json"
    if one_file and len(protocols) != 1:
        raise RequestError(
            f"{len(protocols)} protocols do not go into one file, {out.name}",
            "give a folder, or one protocol",
        )
    written = []
    for name in protocols:
        found = protocol(name)
        with Simulator(found) as simulator:
            samples = _measure(simulator, quick, progress)
            table = _table(found, simulator, samples, clock, quick)
        if progress is not None:
            progress(f"{name} between processes", len(PROBES), len(PROBES))
        table = measure_link(table)
        path = out if one_file else out / f"spu-{name}.json"
        save_table(table, path)
        written.append(path)
    return written


def measure_link_again(path: Path) -> None:
    """Replaces in a table what running between processes adds; its operations stay as they were measured."""
    save_table(measure_link(read_table(path)), path)


def _sizes(name: str, found: Protocol, quick: bool) -> tuple[tuple[int, ...], ...]:
    if name.startswith("matmul"):
        if found.engine_name == "CHEETAH":
            return MATMULS[:-2] if quick else CHEETAH_MATMULS
        return MATMULS[:-2] if quick else MATMULS
    if name == "max":
        return MAXIMA
    if found.engine_name == "CHEETAH":
        return CHEETAH_VALUES
    return VALUES[:-1] if quick else VALUES


def _measure(simulator: Simulator, quick: bool, progress: Progress | None) -> Samples:
    samples: Samples = {}
    # A program that only adds, which sends nothing: what every run takes whatever it computes.
    nothing = typical(probe(simulator, NOTHING, VALUES[0], NOTHING_REPEATS))
    work = [(name, sizes) for name in PROBES for sizes in _sizes(name, simulator.protocol, quick)]
    for done, (name, sizes) in enumerate(work):
        if progress is not None:
            progress(f"{simulator.protocol.name} {name}{sizes}", done, len(work))
        found = probe(simulator, name, sizes, REPEATS)
        samples.setdefault(name, []).extend(less_nothing(sample, nothing) for sample in found)
    return samples


def less_nothing(sample: Sample, nothing: Sample) -> Sample:
    """The run without the time that a run takes which computes nothing."""
    return replace(
        sample,
        wall_seconds=max(sample.wall_seconds - nothing.wall_seconds, LEAST_SECONDS),
        processor_seconds=max(sample.processor_seconds - nothing.processor_seconds, LEAST_SECONDS),
    )


def by_size(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of each size, in order."""
    found: dict[tuple[int, ...], list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.sizes, []).append(sample)
    return list(found.values())


def _table(found: Protocol, simulator: Simulator, samples: Samples, clock: Clock, quick: bool) -> Table:
    cores = min(found.parties, os.cpu_count() or 1)
    if found.engine_name == "CHEETAH":
        seconds = partial(seconds_of, clock=clock, cores=cores)
        operations, ciphertexts = fit_ciphertexts({n: by_size(s) for n, s in samples.items()}, seconds)
        ciphertexts |= REFILL if quick else measure_refill(simulator, seconds)
    else:
        operations, ciphertexts = _operations(found, samples, clock, cores), {}
    return Table(
        protocol=found.name,
        engine=f"spu {version('spu')}, jax {version('jax')}, FM64",
        date=date.today().isoformat(),
        private=found.private,
        setup_bytes=float(simulator.setup.sent_bytes),
        setup_rounds=float(simulator.setup.rounds),
        slope=1.0,
        operations=operations,
        machine={"processor": platform.machine(), "cores": os.cpu_count(), "clock": clock},
        ciphertexts=ciphertexts,
    )


def _operations(found: Protocol, samples: Samples, clock: Clock, cores: int) -> dict[str, Entry]:
    entries = {
        name: fit_entry(name, samples[name], found.parties, clock, cores)
        for name in PROBES
        if name not in WITH_COMPARISON.values()
    }
    for name, combined in WITH_COMPARISON.items():
        both = fit_entry(combined, samples[combined], found.parties, clock, cores)
        entries[name] = less(both, entries["compare_public"])
    return entries


def less(both: Entry, one: Entry) -> Entry:
    """What is left of a combined measurement once one of its two operations is taken off."""
    return replace(
        both,
        sent_bytes=_rows_less(both.sent_bytes, one.sent_bytes),
        rounds=_rows_less(both.rounds, one.rounds),
        seconds=tuple(max(a - b, 0.0) for a, b in zip(both.seconds, one.seconds, strict=True)),
        bytes_variance=max(both.bytes_variance - one.bytes_variance, 0.0),
        rounds_variance=max(both.rounds_variance - one.rounds_variance, 0.0),
        rounds_parallel=both.rounds_parallel - one.rounds_parallel,
    )


def _rows_less(
    both: tuple[tuple[float, ...], ...], one: tuple[tuple[float, ...], ...]
) -> tuple[tuple[float, ...], ...]:
    return tuple(
        tuple(round(a - b, 6) for a, b in zip(x, y, strict=True)) for x, y in zip(both, one, strict=True)
    )


def fit_entry(name: str, samples: Sequence[Sample], parties: int, clock: Clock, cores: int) -> Entry:
    """Coefficients of one operation from all its runs."""
    traffic = [traffic_features(name, s.sizes) for s in samples]
    steps = [round_features(name, s.sizes) for s in samples]
    if parties == 2 or name in FIXED_PARTS:
        return Entry(
            tuple(fit(traffic, [s.sent_bytes[rank] for s in samples]) for rank in range(parties)),
            tuple(fit(steps, [s.rounds[rank] for s in samples]) for rank in range(parties)),
            *timed(name, samples, clock, cores),
        )
    # Who truncates is drawn anew each time: only the mean over parties is a constant.
    return Entry(
        (fit(traffic, [float(np.mean(s.sent_bytes)) for s in samples]),) * parties,
        (fit(steps, [float(np.mean(s.rounds)) for s in samples]),) * parties,
        *timed(name, samples, clock, cores),
        float(
            np.mean(
                [np.var(s.sent_bytes) / max(t[-1], 1) ** 2 for s, t in zip(samples, traffic, strict=True)]
            )
        ),
        float(np.mean([np.var(s.rounds) / t[0] for s, t in zip(samples, steps, strict=True)])),
    )


def seconds_of(sample: Sample, clock: Clock, cores: int) -> float:
    """The computing time of a run by the chosen clock."""
    return sample.wall_seconds if clock == "wall" else sample.processor_seconds / cores


def timed(name: str, samples: Sequence[Sample], clock: Clock, cores: int) -> tuple[tuple[float, ...], float]:
    """Coefficients of the computing time by the middle run of each size, and how far all runs lie off."""
    middle = [typical(group) for group in by_size(samples)]
    features = [second_features(name, s.sizes) for s in middle]
    found = fit_seconds(features, [seconds_of(s, clock, cores) for s in middle])
    every = [second_features(name, s.sizes) for s in samples]
    return found, fit_error(found, every, [seconds_of(s, clock, cores) for s in samples])

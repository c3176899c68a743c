"""Fits CHEETAH's table: what a ciphertext weighs, how many an operation makes, what is left per value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from privit.cost.spu.cheetah import CLIENT, SERVER
from privit.cost.spu.table import Entry, fit, fit_error
from privit.program.operation import PARALLEL_ABOVE
from privit.program.tiles import matmul_tiles
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.probes import PROBES, WITH_COMPARISON, Sample, cheapest, probe
from privit.serve.measure.seconds import fit_seconds

PARALLEL_STREAMS = 2
PRODUCT_CIPHERTEXTS = 3
"""Ciphertexts a product of 64-bit values is split over: 2 x 64 + 4 bits at 47 bits each."""
REFILL_VALUES = 20_000
REFILL_RUNS = 30
# Ferret's refills, where they are not measured: one party sends so much in so many actions, each time that
# transfers of so many bytes of payload are used up.
REFILL = {
    "refill_bytes": 266_300.0,
    "refill_rounds": 1281.0,
    "refill_seconds": 1.0,
    "transfer_bytes_per_refill": 8.64e6,
}
Seconds = Callable[[Sample], float]
Groups = dict[str, list[list[Sample]]]


def fit_ciphertexts(samples: Groups, seconds: Seconds) -> tuple[dict[str, Entry], dict[str, Any]]:
    """Every operation's entry, and the sizes and times of ciphertexts."""
    least = {name: [without_refills(cheapest(g)) for g in groups] for name, groups in samples.items()}
    made = _product_ciphertexts(least, seconds)
    entries = {
        name: _entry(name, least[name], made, seconds)
        for name in PROBES
        if name not in WITH_COMPARISON.values() and not name.startswith("matmul") and name != "max"
    }
    for name, combined in WITH_COMPARISON.items():
        both = [a - b for a, b in zip(least[combined], least["compare_public"], strict=True)]
        entries[name] = _entry(name, both, made, seconds)
    return entries, made | _matmul_ciphertexts(least, entries["multiply_public"], seconds)


def without_refills(sample: Sample) -> Sample:
    """The run less the refills of transfers in it: the sends that only one of the two parties has."""
    extra = sample.rounds[SERVER] - sample.rounds[CLIENT]
    times = round(abs(extra) / REFILL["refill_rounds"])
    if not times:
        return sample
    who = SERVER if extra > 0 else CLIENT
    sent, rounds = list(sample.sent_bytes), list(sample.rounds)
    sent[who] -= times * REFILL["refill_bytes"]
    rounds[who] -= times * REFILL["refill_rounds"]
    return replace(sample, sent_bytes=tuple(sent), rounds=tuple(rounds))


def measure_refill(simulator: Simulator, seconds: Seconds) -> dict[str, float]:
    """What a refill of oblivious transfers costs and how often it comes, from comparisons until two came."""
    return refill_of(probe(simulator, "compare_public", (REFILL_VALUES,), REFILL_RUNS), seconds)


def refill_of(runs: Sequence[Sample], seconds: Seconds) -> dict[str, float]:
    """The refills among equal runs; the known ones where there are too few.

    The client's transfers are used up at another pace: its refills are passed over. Two streams are refilled,
    together or in turn, and how much was left before is not known: what is used up is counted from the first
    refill to the next of the same stream.
    """
    usual = cheapest([run for run in runs if run.rounds[SERVER] == run.rounds[CLIENT]])
    more = [(i, run - usual) for i, run in enumerate(runs) if run.rounds[SERVER] > run.rounds[CLIENT]]
    together = bool(more) and more[0][1].rounds[SERVER] > 1.5 * REFILL["refill_rounds"]
    again = 1 if together else PARALLEL_STREAMS
    if len(more) <= again:
        return dict(REFILL)
    (began, first), (ended, _) = more[0], more[again]
    times = PARALLEL_STREAMS if together else 1
    return {
        "refill_bytes": first.sent_bytes[SERVER] / times,
        "refill_rounds": first.rounds[SERVER] / times,
        "refill_seconds": max(float(np.median([seconds(r) for _, r in more])), 0.0) / times,
        "transfer_bytes_per_refill": (ended - began) * usual.sent_bytes[SERVER] / PARALLEL_STREAMS,
    }


def _product_ciphertexts(least: dict[str, list[Sample]], seconds: Seconds) -> dict[str, Any]:
    smallest, plain = least["multiply_weight"][0], least["multiply_public"][0]
    return {
        "product_ciphertexts": PRODUCT_CIPHERTEXTS,
        "product_request_bytes": round(smallest.sent_bytes[SERVER] / PRODUCT_CIPHERTEXTS, 1),
        "product_response_bytes": round(smallest.sent_bytes[CLIENT] / PRODUCT_CIPHERTEXTS, 1),
        "product_seconds": max(seconds(smallest) - seconds(plain), 1e-3),
    }


def _entry(name: str, samples: Sequence[Sample], made: dict[str, Any], seconds: Seconds) -> Entry:
    """Takes off whole ciphertexts, then fits the rest as linear."""
    batch = PRODUCT_CIPHERTEXTS * np.array([made["product_response_bytes"], made["product_request_bytes"]])
    small = [s for s in samples if s.sizes[0] <= PARALLEL_ABOVE]
    largest = samples[-1]
    whole = round(float(np.mean(np.array(small[0].sent_bytes) / batch)))
    by_server = whole > 0 and small[0].sent_bytes[SERVER] > small[0].sent_bytes[CLIENT]
    batch = batch[::-1] if by_server else batch
    slope = _slope(small, whole * batch)
    more = (np.array(largest.sent_bytes) - slope * largest.sizes[0]) / batch
    products = max(round(float(np.min(more))) - whole, 0)
    batches = [whole] * len(small) + [whole + products]
    every = [*small, largest]
    rest = [np.array(s.sent_bytes) - n * batch for s, n in zip(every, batches, strict=True)]
    rows: tuple[tuple[float, ...], ...]
    if whole:
        # What a ciphertext weighs varies by more than small sizes weigh: the largest alone decides.
        rows = tuple((0.0, round(max(float(rest[-1][rank]), 0.0) / largest.sizes[0], 3)) for rank in (0, 1))
    else:
        clean = [i for i, s in enumerate(every) if s.rounds[0] == s.rounds[1]]
        features = [(1.0, float(every[i].sizes[0])) for i in clean]
        rows = tuple(fit(features, [float(rest[i][rank]) for i in clean]) for rank in (0, 1))
    # A refill is the work of one party: the other's rounds do not show it.
    steps = min(min(s.rounds) for s in small) - whole * PRODUCT_CIPHERTEXTS
    times = [max(seconds(s) - n * made["product_seconds"], 1e-4) for s, n in zip(every, batches, strict=True)]
    lines = [(1.0, float(s.sizes[0])) for s in every]
    slopes = fit_seconds(lines, times)
    return Entry(
        rows,
        ((steps,), (steps,)),
        slopes,
        min(fit_error(slopes, lines, times), 1.0),
        products=products,
        squares=0 if by_server else whole,
        weight_products=whole if by_server else 0,
        rounds_parallel=min(largest.rounds) - (whole + products) * PRODUCT_CIPHERTEXTS,
    )


def _slope(small: Sequence[Sample], whole: np.ndarray) -> np.ndarray:
    """Bytes per value of each rank, roughly, from two small sizes."""
    rest = np.array(small[-1].sent_bytes) - whole
    return np.maximum(rest, 0.0) / small[-1].sizes[0]


def _matmul_ciphertexts(least: dict[str, list[Sample]], truncation: Entry, seconds: Any) -> dict[str, Any]:
    requests, full, single = [], [], []
    features, times = [], []
    for sample in least["matmul_weight"]:
        rows, _, columns = sample.sizes
        tiles = matmul_tiles(*sample.sizes)
        rest = [
            sent - (row[0] + row[1] * rows * columns)
            for sent, row in zip(sample.sent_bytes, truncation.sent_bytes, strict=True)
        ]
        encrypting, answering = (CLIENT, SERVER) if tiles.left_encrypted else (SERVER, CLIENT)
        requests.append(rest[encrypting] / tiles.requests)
        if tiles.single:
            single.append((1.0, float(rows * columns), rest[answering]))
        else:
            full.append(rest[answering] / tiles.responses)
        features.append(tiles.work())
        times.append(seconds(sample))
    coefficients = list(fit_seconds(features, times))
    intercept, slope = fit([s[:2] for s in single], [s[2] for s in single])
    return {
        "matmul_request_bytes": round(float(np.median(requests)), 1),
        "matmul_response_bytes": round(float(np.median(full)), 1),
        "matmul_single_bytes": intercept,
        "matmul_coefficient_bytes": slope,
        "matmul_seconds": coefficients,
        "seconds_error": fit_error(coefficients, features, times),
    }

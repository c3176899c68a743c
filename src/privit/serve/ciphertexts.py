"""Fits CHEETAH's table: what a ciphertext weighs, how many an operation makes, what is left per value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from privit.cost.cheetah import CLIENT, PARALLEL_ABOVE, SERVER
from privit.cost.shapes import POLYNOMIAL, matmul_tiles
from privit.cost.table import Entry, fit
from privit.serve.probes import PROBES, WITH_COMPARISON, Sample, cheapest

PRODUCT_CIPHERTEXTS = 4
"""Ciphertexts a product of 64-bit values is split over: 2 x 64 + 15 bits at 36 bits each."""
# Ferret's refills, as seen between runs of comparisons: one party sends this much in so many actions, once
# its transfers of about 8.6 MB of payload are used up.
REFILL = {
    "refill_bytes": 266_300.0,
    "refill_rounds": 1281.0,
    "transfer_bytes_per_refill": 8.64e6,
}
Groups = dict[str, list[list[Sample]]]


def fit_ciphertexts(samples: Groups, clock: str, cores: int) -> tuple[dict[str, Entry], dict[str, Any]]:
    """Every operation's entry, and the sizes and times of ciphertexts."""
    least = {name: [cheapest(group) for group in groups] for name, groups in samples.items()}

    def seconds(sample: Sample) -> float:
        return sample.wall_seconds if clock == "wall" else sample.processor_seconds / cores

    made = _product_ciphertexts(least, seconds)
    entries = {
        name: _entry(name, least[name], made, seconds)
        for name in PROBES
        if name not in WITH_COMPARISON.values() and not name.startswith("matmul") and name != "max"
    }
    for name, combined in WITH_COMPARISON.items():
        both = [a - b for a, b in zip(least[combined], least["compare_public"], strict=True)]
        entries[name] = _entry(name, both, made, seconds)
    return entries, made | _matmul_ciphertexts(least, entries["multiply_public"], seconds) | REFILL


def _product_ciphertexts(least: dict[str, list[Sample]], seconds: Any) -> dict[str, Any]:
    smallest, plain = least["multiply_weight"][0], least["multiply_public"][0]
    return {
        "product_ciphertexts": PRODUCT_CIPHERTEXTS,
        "product_request_bytes": round(smallest.sent_bytes[SERVER] / PRODUCT_CIPHERTEXTS, 1),
        "product_response_bytes": round(smallest.sent_bytes[CLIENT] / PRODUCT_CIPHERTEXTS, 1),
        "product_seconds": max(seconds(smallest) - seconds(plain), 1e-3),
        "refill_seconds": 100 * max(seconds(smallest) - seconds(plain), 1e-3),
    }


def _entry(name: str, samples: Sequence[Sample], made: dict[str, Any], seconds: Any) -> Entry:
    """Takes off whole ciphertexts, then fits the rest as linear."""
    batch = PRODUCT_CIPHERTEXTS * np.array([made["product_response_bytes"], made["product_request_bytes"]])
    small = [s for s in samples if s.sizes[0] <= POLYNOMIAL // 8]
    large = [s for s in samples if s.sizes[0] > PARALLEL_ABOVE]
    by_server = small[0].sent_bytes[SERVER] > small[0].sent_bytes[CLIENT]
    if by_server:
        batch = batch[::-1]
    whole = round(float(np.mean(np.array(small[0].sent_bytes) / batch)))
    rest = [np.array(s.sent_bytes) - whole * batch for s in small]
    features = [(1.0, float(s.sizes[0])) for s in small]
    rows = tuple(fit(features, [max(float(r[rank]), 0.0) for r in rest]) for rank in (SERVER, CLIENT))
    steps = float(np.mean([s.rounds[0] for s in small])) - whole * PRODUCT_CIPHERTEXTS
    products, parallel = 0, steps
    for sample in large:
        predicted = np.array([row[0] + row[1] * sample.sizes[0] for row in rows])
        batches = round(float(np.mean((np.array(sample.sent_bytes) - predicted) / batch)))
        products = max(batches - whole, 0)
        parallel = sample.rounds[0] - batches * PRODUCT_CIPHERTEXTS
    times = [max(seconds(s) - whole * made["product_seconds"], 1e-4) for s in small]
    times += [max(seconds(s) - (whole + products) * made["product_seconds"], 1e-3) for s in large]
    slopes = fit([(1.0, float(s.sizes[0])) for s in [*small, *large]], times)
    return Entry(
        rows,
        ((steps,), (steps,)),
        tuple(max(s, 0.0) for s in slopes),
        products=products,
        squares=0 if by_server else whole,
        weight_products=whole if by_server else 0,
        rounds_parallel=parallel,
    )


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
        features.append(
            (1.0, float(tiles.requests), float(tiles.responses), float(tiles.products), float(tiles.blocks))
        )
        times.append(seconds(sample))
    intercept, slope = fit([s[:2] for s in single], [s[2] for s in single])
    return {
        "matmul_request_bytes": round(float(np.median(requests)), 1),
        "matmul_response_bytes": round(float(np.median(full)), 1),
        "matmul_single_bytes": intercept,
        "matmul_coefficient_bytes": slope,
        "matmul_seconds": [max(c, 0.0) for c in fit(features, times)],
    }

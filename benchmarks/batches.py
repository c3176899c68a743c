"""Batches beside single queries in one run: `python -m benchmarks.batches ARTIFACT --protocol P --network N`.

Two sessions between real engine processes are open at the same time, one for single images and one for a
batch, over one shaped network. Their queries take turns, so whatever else the machine does meets both. Every
answer is compared with the program in the clear, and the batch's with those of single queries.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Artifact, load_artifact
from privit.cost.network import Network, network
from privit.cost.spu.predict import estimate_spu
from privit.data.datasets import load_data, preprocess_split
from privit.serve.engine.protocols import Protocol, protocol
from privit.serve.measure.bench import random_images
from privit.serve.measure.private import clear_logits
from privit.serve.measure.sessions import Query, joined_parties
from privit.serve.wire.addresses import part_of
from privit.serve.wire.shaping import run_finely

LIMITS = {("semi2k-benchmark", "wan"): 0.35, ("cheetah", "lan"): 0.6}
"""The largest share of a single query that one image of a batch of 8 may take."""


def some_images(artifact: Artifact, count: int) -> np.ndarray:
    """Test images (count, C, S, S) of the data set that the model was trained on, or noise."""
    name = artifact.public.notes.get("data")
    if not name:
        return random_images(artifact.public, 0, count)
    return preprocess_split(load_data(name).test, artifact.public.preprocessing, np.arange(count))


async def measure(
    folder: Path, found: Protocol, where: Network, pixels: np.ndarray, singles: int
) -> tuple[list[Query], list[Query]]:
    """Single queries and, after each of the first two, a query of the whole batch."""
    async with (
        joined_parties(folder, found) as one,
        joined_parties(folder, found, images=len(pixels)) as many,
    ):
        for parties in (one, many):
            await parties.open()
            parties.shape(where)
        alone, together = [], []
        for index in range(singles):
            alone.append(await one.query(pixels[index]))
            print(f"single query {index + 1}: {alone[-1].seconds:.2f} s", flush=True)
            if index < 2:
                together.append(await many.query(pixels))
                print(f"batch of {len(pixels)}: {together[-1].seconds:.2f} s", flush=True)
    return alone, together


def run(folder: Path, protocol_name: str, network_name: str, batch: int, singles: int) -> dict[str, Any]:
    """Seconds, bytes and rounds of a single query and per image of a batch, and how far answers are apart."""
    artifact = load_artifact(part_of(folder, "server"))
    public, classes = artifact.public, artifact.spec.classes
    pixels, where = some_images(artifact, batch), network(network_name)
    alone, together = run_finely(measure(folder, protocol(protocol_name), where, pixels, singles))
    answers = together[-1].logits.reshape(batch, -1)
    clear = np.stack([clear_logits(artifact, image) for image in pixels])
    one = np.stack([query.logits for query in alone])
    # Neighbours in time are compared, so that both meet the same machine.
    pairs = alone[: len(together)]
    single, whole = _means(pairs), _means(together)
    figures = {
        "artifact": folder.name,
        "protocol": protocol_name,
        "network": where.to_json(),
        "batch": batch,
        "single": _figures(alone[-1], single),
        "whole_batch": _figures(together[-1], whole),
        "seconds_ratio": whole["seconds"] / batch / single["seconds"],
        "seconds_ratios": [b.seconds / batch / a.seconds for a, b in zip(pairs, together, strict=True)],
        "processor_ratio": whole["processor_seconds"] / batch / single["processor_seconds"],
        "bytes_ratio": _most(together[-1])[0] / batch / _most(alone[-1])[0],
        "rounds_ratio": _most(together[-1])[1] / batch / _most(alone[-1])[1],
        "largest_ratio": LIMITS.get((protocol_name, network_name)),
        "error_of_single": float(np.abs(one[:, :classes] - clear[: len(one)]).max()),
        "error_of_batch": float(np.abs(answers[:, :classes] - clear).max()),
        "batch_from_single": float(np.abs(answers[: len(one), :classes] - one[:, :classes]).max()),
        "same_classes": bool((answers[:, :classes].argmax(1) == clear.argmax(1)).all()),
        "bits": [float(bit) for bit in answers[:, classes:].reshape(-1)],
    }
    options = {"ranges": public.ranges, "guard": public.guard, "network": where}
    for name, images in (("single", 1), ("whole_batch", batch)):
        found = estimate_spu(artifact.spec, artifact.plan, protocol_name, batch=images, **options)
        figures[name]["predicted"] = {key: found[key] for key in ("sent_bytes", "rounds", "seconds")}
    return figures


def _most(query: Query) -> tuple[int, int]:
    return max(c.engine_bytes for c in query.counts), max(c.actions for c in query.counts)


def _means(queries: Sequence[Query]) -> dict[str, float]:
    return {
        "seconds": sum(q.seconds for q in queries) / len(queries),
        "processor_seconds": sum(q.processor_seconds for q in queries) / len(queries),
    }


def _figures(query: Query, means: dict[str, float]) -> dict[str, Any]:
    sent, rounds = _most(query)
    return {**means, "sent_bytes": sent, "rounds": rounds}


def main() -> None:
    """Measures one artifact on one protocol and network, and adds the figures to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--protocol", default="semi2k-benchmark")
    parser.add_argument("--network", default="wan")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--singles", type=int, default=3, help="single queries that are compared")
    parser.add_argument("--out", type=Path, default=None, help="a JSON file to which the figures are added")
    given = parser.parse_args()
    found = run(given.artifact, given.protocol, given.network, given.batch, min(given.singles, given.batch))
    print(json.dumps(found, indent=1))
    if given.out is not None:
        before = json.loads(given.out.read_text()) if given.out.exists() else []
        given.out.write_text(json.dumps([*before, found], indent=1) + "\n")


if __name__ == "__main__":
    main()

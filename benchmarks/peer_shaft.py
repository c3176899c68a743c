"""SHAFT (NDSS '25, a fork of CrypTen) on DeiT-Tiny, for a reader who has installed it.

    python peer_shaft.py --image-size 112 --images 1       # in an environment with SHAFT, not in privit's

Two processes of one thread each on this machine, weights and images secret, correlated randomness by a
trusted first party: to be compared with semi2k-benchmark only. Prints what a party sent, its rounds, the
seconds, and on how many random images the class is that of the plaintext model. The figures in docs/engine.md
were made with commit 3ceb0ee, torch 2.0.1, transformers 4.45.0 and onnx 1.16.2 on a CPU, and given to us;
this file follows SHAFT's own example and was not run here, where SHAFT is not installed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

MODEL = "facebook/deit-tiny-patch16-224"


def party(rank: int, rendezvous: str, image_size: int, images: int) -> None:
    """One of the two parties."""
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "RENDEZVOUS": rendezvous, "OMP_NUM_THREADS": "1"}
    import crypten
    import torch
    from transformers import AutoModelForImageClassification

    torch.set_num_threads(1)
    torch.manual_seed(0)
    crypten.init()
    model = AutoModelForImageClassification.from_pretrained(
        MODEL, image_size=image_size, ignore_mismatched_sizes=True
    ).eval()
    shape = (1, 3, image_size, image_size)
    private = crypten.nn.from_pytorch(model, torch.rand(shape)).encrypt()
    agreed, found = 0, []
    for _ in range(images):
        image = torch.rand(shape)
        crypten.reset_communication_stats()
        started = time.perf_counter()
        with crypten.no_grad():
            logits = private(crypten.cryptensor(image)).get_plain_text()
        stats: dict[str, Any] = dict(crypten.get_communication_stats())
        found.append({"seconds": time.perf_counter() - started} | stats)
        with torch.no_grad():
            agreed += int(logits.argmax() == model(image).logits.argmax())
    if rank == 0:
        print(
            json.dumps({"image_size": image_size, "agreed": agreed, "images": found}, indent=1, default=str)
        )


def main() -> None:
    """Starts both parties and waits for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image-size", type=int, default=112)
    parser.add_argument("--images", type=int, default=1)
    wanted = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f"file://{Path(folder) / 'meeting'}"
        parties = [
            context.Process(target=party, args=(rank, rendezvous, wanted.image_size, wanted.images))
            for rank in (0, 1)
        ]
        for process in parties:
            process.start()
        for process in parties:
            process.join()


if __name__ == "__main__":
    main()

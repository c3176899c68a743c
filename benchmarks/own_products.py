"""Forms of the products that each image of a batch has for itself: `python -m benchmarks.own_products aby3`.

Scores (q k^T) and what they weight (a v) belong to one image. Every form below gives the same numbers;
they differ in bytes, rounds and computing. `program/choices.py` has what was chosen for each protocol.

    apart    one product an image, as the engine loops over a batch axis
    blocks   left factors on the diagonal of one matrix, right factors below each other
    crossed  every image's left factor with every image's right one; the diagonal blocks are kept
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from privit.program.choices import Batch
from privit.serve.compile.compile import Input, program_of
from privit.serve.engine.protocols import protocol
from privit.serve.engine.simulator import Simulator
from privit.serve.model.images import own_product

SHAPES = {
    "digits, q k^T": (17, 16, 17),
    "digits, a v": (17, 17, 16),
    "DeiT-Tiny at 112 px, q k^T": (50, 64, 50),
    "DeiT-Tiny at 112 px, a v": (50, 50, 64),
    "its class token, q k^T": (3, 192, 50),
    "its class token, a v": (3, 50, 192),
}
Form = Callable[[Array, Array], Array]
"""Of the rows of all images of both factors (see `serve/model/images.py`)."""


def forms(images: int) -> dict[str, Form]:
    """Every form by name, with how many images share a product."""
    found: dict[str, Form] = {"apart": lambda a, b: own_product(Batch(images, 1), a, b)}
    for together in (g for g in (2, 4, 8) if g <= images):
        found[f"blocks of {together}"] = lambda a, b, g=together: own_product(Batch(images, g), a, b)  # type: ignore[misc]
        found[f"crossed by {together}"] = lambda a, b, g=together: crossed(images, g, a, b)  # type: ignore[misc]
    return found


def crossed(images: int, together: int, left: Array, right: Array) -> Array:
    """All products between the images of a group, of which those of each image with itself are kept."""
    first = left.reshape(-1, images, left.shape[1])
    second = right.reshape(-1, images, right.shape[1])
    parts = []
    for start in range(0, images, together):
        a, b = first[:, start : start + together], second[:, start : start + together]
        joined = a.reshape(-1, a.shape[2]) @ b.reshape(b.shape[0], -1)
        blocks = joined.reshape(a.shape[0], a.shape[1], b.shape[1], b.shape[2])
        parts += [blocks[:, i, i] for i in range(a.shape[1])]
    return jnp.stack(parts, axis=1).reshape(left.shape[0], right.shape[1])


def measure(simulator: Simulator, form: Form, images: int, sizes: tuple[int, int, int]) -> dict[str, Any]:
    """One form on shared values: what it sends, its rounds, processor time and largest error."""
    rows, inner, columns = sizes
    shapes = {"left": (rows * images, inner), "right": (inner * images, columns)}
    # A sum of the server's and the client's is shared, as values inside a model are.
    inputs = tuple(Input(f"{n}.{o}", shapes[n], o) for n in shapes for o in ("server", "client"))  # type: ignore[arg-type]
    program = program_of(
        lambda v: form(v["left.server"] + v["left.client"], v["right.server"] + v["right.client"]), inputs
    )
    rng = np.random.default_rng(0)
    values = {entry.name: rng.normal(size=entry.shape).astype(np.float32) for entry in inputs}
    simulator.give(inputs, values)
    simulator.run(program.executable)
    counts = simulator.run(program.executable)
    left = (values["left.server"] + values["left.client"]).reshape(rows, images, inner)
    right = (values["right.server"] + values["right.client"]).reshape(inner, images, columns)
    expected = np.einsum("nbk,kbm->nbm", left, right).reshape(rows * images, columns)
    return {
        "sent_bytes": counts.sent_bytes,
        "rounds": counts.rounds,
        "processor_seconds": round(counts.processor_seconds, 3),
        "error": float(np.abs(simulator.open(program.output) - expected).max()),
    }


def main() -> None:
    """Prints every form on every shape for one protocol."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("protocol", choices=("cheetah", "aby3", "semi2k-benchmark"))
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--only", default="", help="shapes whose name holds this")
    given = parser.parse_args()
    with Simulator(protocol(given.protocol)) as simulator:
        for name, sizes in SHAPES.items():
            if given.only in name:
                for form, function in forms(given.images).items():
                    found = measure(simulator, function, given.images, sizes)
                    print(json.dumps({"shape": name, "form": form, **found}), flush=True)


if __name__ == "__main__":
    main()

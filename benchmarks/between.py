"""A query between server and client against the same query with all parties in one process, in turns.

    python -m benchmarks.between [--plan digits/mixed] [--protocol cheetah] [--turns 3] [--most 1.25]

Server and client are `privit serve` and `privit query` over loopback, with nothing shaped. Between them stand
two processes more, the tunnel and what is written and read twice. The least of each turn's queries counts,
the median of turns is printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.before import HERE, asked
from benchmarks.predicted import models, plan_of, ranges_of
from privit.artifact import Preprocessing, Public, load_artifact, save_artifact

QUERIES = 3


def made(folder: Path, protocol: str, name: str) -> list[Path]:
    """Writes the artifact of a plan with random weights, and as many images as are asked in a turn."""
    from privit.serve.measure.bench import random_weights

    model, kind = name.split("/")
    spec = models(protocol)[model]
    plan, half = plan_of(spec, kind), (0.5,) * spec.channels
    names = tuple(str(i) for i in range(spec.classes))
    preprocessing = Preprocessing(spec.image_size, spec.channels, half, half)
    public = Public(spec, preprocessing, names, ranges_of(spec, kind))
    save_artifact(folder / "artifact", public, plan, random_weights(public, plan, seed=0))
    rng, paths = np.random.default_rng(0), []
    for index in range(QUERIES):
        size = (spec.image_size, spec.image_size, spec.channels)
        paths.append(folder / f"{index}.png")
        Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8).squeeze()).save(paths[-1])
    return paths


def simulate(folder: Path, protocol_name: str) -> None:
    """Prints the seconds of a few queries with all parties in this process."""
    from privit.program.choices import batch_for
    from privit.serve.compile.compile import client_values, compile_program, server_values
    from privit.serve.engine.protocols import protocol
    from privit.serve.engine.simulator import Simulator
    from privit.serve.measure.bench import random_image

    found = load_artifact(folder / "artifact")
    public, plan = found.public, found.plan
    assert found.weights is not None
    program = compile_program(public, plan, batch=batch_for(protocol_name, 1))
    values = server_values(public, plan, found.weights) | client_values(public, random_image(public, 0))
    with Simulator(protocol(protocol_name)) as simulator:
        simulator.give(program.inputs, values)
        print(json.dumps([simulator.run(program.executable).seconds for _ in range(QUERIES)]))


def main() -> int:
    """Takes turns, and prints both and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", default="digits/mixed")
    parser.add_argument("--protocol", default="cheetah")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--most", type=float, default=1.25)
    parser.add_argument("--simulate", type=Path, help="not for you: one turn of the simulator")
    wanted = parser.parse_args()
    if wanted.simulate:
        simulate(wanted.simulate, wanted.protocol)
        return 0
    found: dict[str, list[float]] = {"one process": [], "between": []}
    with tempfile.TemporaryDirectory(prefix="privit-between-") as name:
        folder = Path(name)
        images = made(folder, wanted.protocol, wanted.plan)
        alone = [sys.executable, "-m", "benchmarks.between", "--simulate", name]
        for turn in range(wanted.turns):
            done = subprocess.run(
                [*alone, "--protocol", wanted.protocol],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                cwd=HERE,
            )
            found["one process"].append(min(json.loads(done.stdout.splitlines()[-1])))
            answers = asked(HERE, folder / "artifact", wanted.protocol, images)
            found["between"].append(min(answer["seconds"] for answer in answers))
            print(f"turn {turn + 1}:", {way: round(times[-1], 2) for way, times in found.items()}, flush=True)
    middle = {way: statistics.median(times) for way, times in found.items()}
    ratio = middle["between"] / middle["one process"]
    print(
        f"{middle['one process']:.2f} s in one process, {middle['between']:.2f} s between: {ratio:.2f} times"
    )
    return 0 if ratio <= wanted.most else 1


if __name__ == "__main__":
    sys.exit(main())

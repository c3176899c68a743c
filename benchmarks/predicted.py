"""The spu profile against measurements: eighteen plans that no table was fitted on, on every protocol.

    python -m benchmarks.predicted                       # all rows that docs/results/predicted.json lacks
    python -m benchmarks.predicted --protocol cheetah --model digits --again
    python -m benchmarks.predicted --show                # the table alone

Bytes and rounds are counted in the simulator, where they are the same as between processes; set-up is not
part of a row, and refills of CHEETAH's transfers are taken off both sides of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Preprocessing, Public
from privit.cost.spu.predict import estimate_spu
from privit.cost.spu.table import PROTOCOLS, shipped_table
from privit.operators import TABLE
from privit.plan import Plan, plan_from_counts, plan_from_ids, uniform_plan
from privit.program.choices import batch_for
from privit.spec import PAPER_KINDS, Granularity, Spec, sites, vit_spec

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "predicted.json"
TOLERANCE = {"semi2k-benchmark": (0.01, 0.01), "aby3": (0.05, 0.05), "cheetah": (0.10, 0.15)}
VARIANCE = {"low": 0.2, "high": 3.0}
SCORES = {"drop": 3.0, "peak": 4.0, "mean_exp": 2.0}
KINDS = ("searched", "mixed", "norms", "static", "dense-rewritten", "dense")
LATER = ("static_attn",)
"""Operators that came after the drawn plans were measured; they have plans of their own."""


def models(protocol: str) -> dict[str, Spec]:
    """Three models; the third is cut to two layers at 64 px on CHEETAH, where a whole one takes hours."""
    deit = vit_spec(112, 16, 192, 12, 3, classes=10)
    short = vit_spec(64, 16, 192, 2, 3, classes=10)
    return {
        "digits": vit_spec(16, 4, 64, 4, 4, classes=10, channels=1),
        "small32": vit_spec(32, 8, 96, 3, 3, classes=10),
        "deit-tiny": short if protocol == "cheetah" else deit,
    }


def plan_of(spec: Spec, kind: str) -> Plan:
    """A plan of one kind, always the same for the same model."""
    if kind == "searched":
        early = [max(1, spec.tokens // (2 + 3 * layer)) for layer in range(spec.depth)]
        return plan_from_counts(spec, early, [2 * tokens for tokens in early], seed=1)
    if kind == "static":
        return uniform_plan(spec, "quadratic", "static_attn")
    if kind in ("mixed", "norms"):
        return _mixed(spec, kind == "norms")
    return uniform_plan(spec)


def _mixed(spec: Spec, norms: bool) -> Plan:
    """Every operator but `LATER` somewhere, drawn by token and row; with `norms` LayerNorms, too."""
    rng = np.random.default_rng(2)
    shapes = sites(spec, Granularity())
    ids = {kind: [o.id for o in TABLE if o.kind == kind and o.name not in LATER] for kind in PAPER_KINDS}
    drawn = {kind: [rng.choice(ids[kind], size=shape) for shape in shapes[kind]] for kind in PAPER_KINDS}
    drawn["norm"] = list(uniform_plan(spec).layers["norm"])
    if norms:
        exact = drawn["norm"][0][0]
        every = [o.id for o in TABLE if o.kind == "norm"]
        drawn["norm"] = [rng.choice(every, size=shape) for shape in shapes["norm"]]
        # The first has no other's factor to use.
        drawn["norm"][0][0] = exact
    return plan_from_ids(Granularity(), drawn)


def ranges_of(spec: Spec, kind: str) -> dict[str, float]:
    """Public ranges for the searched plans, which shorten exp, reciprocal and rsqrt; none for the others."""
    if kind != "searched":
        return {}
    norms = [f"blocks.{i}.norm{n}" for i in range(spec.depth) for n in (1, 2)] + ["norm"]
    found = {f"{norm}.variance_{end}": value for norm in norms for end, value in VARIANCE.items()}
    rows = {f"blocks.{i}.softmax.{name}": value for i in range(spec.depth) for name, value in SCORES.items()}
    return found | rows


def measured(spec: Spec, kind: str, protocol_name: str) -> dict[str, float]:
    """Bytes, rounds and seconds of a query, counted in the simulator."""
    from privit.serve.compile.compile import client_values, compile_program, program_of, server_values
    from privit.serve.engine.protocols import protocol
    from privit.serve.engine.simulator import Simulator
    from privit.serve.measure.bench import random_image, random_weights
    from privit.serve.model.as_written import written_inputs, written_parts

    plan, found = plan_of(spec, kind), protocol(protocol_name)
    half = (0.5,) * spec.channels
    preprocessing = Preprocessing(spec.image_size, spec.channels, half, half)
    names = tuple(str(i) for i in range(spec.classes))
    public = Public(spec, preprocessing, names, ranges_of(spec, kind))
    weights = random_weights(public, plan, seed=0)
    values = client_values(public, random_image(public, seed=0))
    if kind == "dense":
        parts = written_parts(spec, plan, "dense")
        program = program_of(lambda given: _chained(parts, given), written_inputs(spec))
        values |= {entry.name: weights[entry.name] for entry in program.inputs if entry.owner == "server"}
    else:
        program = compile_program(public, plan, batch=batch_for(protocol_name, 1))
        values |= server_values(public, plan, weights)
    with Simulator(found) as simulator:
        simulator.give(program.inputs, values)
        counts = simulator.run(program.executable)
    return (
        without_refills(counts) if found.engine_name == "CHEETAH" else _figures(counts.ranks, counts.seconds)
    )


def _figures(ranks: Sequence[Any], seconds: float) -> dict[str, float]:
    return {
        "sent_bytes": max(rank.sent_bytes for rank in ranks),
        "rounds": max(rank.rounds for rank in ranks),
        "seconds": seconds,
    }


def without_refills(counts: Any) -> dict[str, float]:
    """A query less its refills of transfers, which are the sends of one party alone."""
    from privit.serve.engine.profile import Traffic

    made = shipped_table("cheetah").ciphertexts
    first, second = counts.ranks
    times = round(abs(first.rounds - second.rounds) / made["refill_rounds"])
    refills = Traffic(round(times * made["refill_bytes"]), round(times * made["refill_rounds"]))
    ranks = (first - refills, second) if first.rounds > second.rounds else (first, second - refills)
    return _figures(ranks, counts.seconds) | {"refills": times}


def _chained(parts: Any, given: Any) -> Any:
    tokens = parts[0][1](given)
    for _, part in parts[1:]:
        tokens = part({**given, "tokens": tokens})
    return tokens


def predicted(protocol: str, model: str, kind: str) -> dict[str, Any]:
    """What the table says of the same query."""
    spec = models(protocol)[model]
    graph = kind if kind.startswith("dense") else "all"
    return estimate_spu(spec, plan_of(spec, kind), protocol, ranges=ranges_of(spec, kind), rewrites=graph)


def row(protocol: str, model: str, kind: str) -> dict[str, Any]:
    """One line of the table: predicted, measured and the difference."""
    real = measured(models(protocol)[model], kind, protocol)
    guess = predicted(protocol, model, kind)
    return {"protocol": protocol, "model": model, "plan": kind, "measured": real} | compared(guess, real)


def compared(guess: dict[str, Any], real: dict[str, float]) -> dict[str, Any]:
    """Prediction without refills next to a measurement without refills."""
    predicted = {
        name: guess[name] - guess[f"refill_{name.removeprefix('sent_')}"] for name in ("sent_bytes", "rounds")
    }
    errors = {f"{name}_error": predicted[name] / real[name] - 1 for name in predicted}
    return {"predicted": predicted} | errors


def rows(found: dict[str, Any], wanted: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every row that is asked for and not there yet."""
    for protocol in PROTOCOLS:
        for model in models(protocol):
            for kind in KINDS:
                key = f"{protocol}/{model}/{kind}"
                asked = (wanted.protocol in (None, protocol)) and wanted.model in (None, model)
                if asked and wanted.plan in (None, kind) and (wanted.again or key not in found):
                    print(key, file=sys.stderr, flush=True)
                    yield {"key": key} | row(protocol, model, kind)


def refreshed(entry: dict[str, Any]) -> dict[str, Any]:
    """A stored row with the prediction of today's tables."""
    guess = predicted(entry["protocol"], entry["model"], entry["plan"])
    return entry | compared(guess, entry["measured"])


def show(found: dict[str, Any]) -> int:
    """Prints the table; returns how many rows miss their tolerance."""
    print(
        f"{'protocol':18}{'model':12}{'plan':17}{'MB':>9}{'predicted':>11}{'rounds':>8}{'predicted':>11} off"
    )
    missed = 0
    for entry in found.values():
        errors = entry["sent_bytes_error"], entry["rounds_error"]
        good = all(abs(e) <= t for e, t in zip(errors, TOLERANCE[entry["protocol"]], strict=True))
        missed += not good
        real, guess = entry["measured"], entry["predicted"]
        print(
            f"{entry['protocol']:18}{entry['model']:12}{entry['plan']:17}{real['sent_bytes'] / 1e6:9.3f}"
            f"{guess['sent_bytes'] / 1e6:11.3f}{real['rounds']:8.0f}{guess['rounds']:11.0f}"
            f"  {errors[0]:+.2%} {errors[1]:+.2%}{'' if good else '  MISSED'}"
        )
    return missed


def main() -> int:
    """Measures what is missing, writes the results and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("protocol", "model", "plan"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--again", action="store_true", help="measure rows that are there already")
    parser.add_argument("--show", action="store_true", help="print the table alone")
    wanted = parser.parse_args()
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not wanted.show:
        for entry in rows(found, wanted):
            # Another run may have added rows in the meantime.
            found = (json.loads(RESULTS.read_text()) if RESULTS.exists() else {}) | {entry.pop("key"): entry}
            RESULTS.parent.mkdir(parents=True, exist_ok=True)
            RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    found = {key: refreshed(entry) for key, entry in sorted(found.items())}
    if not wanted.show:
        RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return 1 if show(found) else 0


if __name__ == "__main__":
    sys.exit(main())

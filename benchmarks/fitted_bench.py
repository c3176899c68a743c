"""What the polynomial ViT costs under MPC: DeiT-Tiny at 112 px with no exact site, SEMI2K, one run.

    python benchmarks/fitted_bench.py

Fitted stand-ins (quadratic, quadratic_attn) next to the paper's (identity, squared_attn), to the dense model
as written and to the dense model after the rewrites. `identity-unmerged` runs the paper's identity through
both matrices of the MLP, as the quadratic must: what is between the two is the squares. Weights are random;
all but the dense graphs are given the polynomial model's ranges, so that their LayerNorms are alike. The end
is docs/results/fitted-bench.json.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from privit.artifact import Artifact, Preprocessing, Public
from privit.data.catalog import catalog_spec
from privit.plan import uniform_plan
from privit.program.choices import Rewrites
from privit.runs import write_text
from privit.serve.engine.protocols import protocol
from privit.serve.measure.bench import bench, measure, measured_ranges, random_image, random_weights

RESULT = Path(__file__).resolve().parents[1] / "docs" / "results" / "fitted-bench.json"
PROTOCOL = "semi2k-benchmark"
PLANS = {
    "polynomial": ("quadratic", "quadratic_attn"),
    "paper": ("identity", "squared_attn"),
    "affine": ("affine", "quadratic_attn"),
    "quadratic, squared_attn": ("quadratic", "squared_attn"),
}


def main() -> dict[str, Any]:
    """Measures every graph, writes and prints the result."""
    spec = catalog_spec("deit_tiny_patch16_224", image_size=112, classes=10)
    half = (0.5,) * spec.channels
    public = Public(spec, Preprocessing(spec.image_size, spec.channels, half, half), tuple("0123456789"))
    polynomial = uniform_plan(spec, *PLANS["polynomial"])
    result = bench(Artifact(public, polynomial), PROTOCOL, ("dense", "dense-rewritten"))
    found = {graph: _figures(figures) for graph, figures in result["against"].items()}
    ranges = measured_ranges(
        public, polynomial, random_weights(public, polynomial, 0), random_image(public, 0)
    )
    ranged = replace(public, ranges=ranges)
    for name, operators in PLANS.items():
        found[name] = _measured(ranged, operators, Rewrites())
    found["identity-unmerged"] = _measured(ranged, PLANS["paper"], Rewrites(merge_mlp=False))
    summary = {"model": "deit_tiny_patch16_224 at 112 px", "protocol": PROTOCOL, "private": False}
    result = summary | {"command": "python benchmarks/fitted_bench.py", "graphs": found}
    write_text(RESULT, json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return result


def _measured(public: Public, operators: tuple[str, str], rewrites: Rewrites) -> dict[str, Any]:
    plan = uniform_plan(public.spec, *operators)
    weights, pixels = random_weights(public, plan, 0), random_image(public, 0)
    total = measure(public, plan, weights, pixels, protocol(PROTOCOL), rewrites).total
    return {"sent_bytes": total.sent_bytes, "rounds": total.rounds}


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("sent_bytes", "rounds")}


if __name__ == "__main__":
    main()

"""What the polynomial ViT costs under MPC: DeiT-Tiny at 112 px with no exact site, SEMI2K, one run.

    python benchmarks/fitted_bench.py

Fitted stand-ins (quadratic, quadratic_attn) next to the paper's (identity, squared_attn), to the dense model
as written and to the dense model after the rewrites. `identity-unmerged` runs the paper's identity through
both matrices of the MLP, as the quadratic must: what is between the two is the squares. The end is
docs/results/fitted-bench.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from privit.artifact import Artifact, Preprocessing, Public
from privit.catalog import catalog_spec
from privit.plan import uniform_plan
from privit.runs import write_text
from privit.serve.bench import bench, measure, measured_ranges, random_image, random_weights
from privit.serve.protocols import protocol
from privit.serve.rewrites import Rewrites

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
    found: dict[str, Any] = {}
    for name, operators in PLANS.items():
        against = ("dense", "dense-rewritten") if name == "polynomial" else ()
        result = bench(Artifact(public, uniform_plan(spec, *operators)), PROTOCOL, against)
        found[name] = _figures(result)
        found |= {graph: _figures(figures) for graph, figures in result["against"].items()}
    found["identity-unmerged"] = _unmerged(public)
    summary = {"model": "deit_tiny_patch16_224 at 112 px", "protocol": PROTOCOL, "private": False}
    result = summary | {"command": "python benchmarks/fitted_bench.py", "graphs": found}
    write_text(RESULT, json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return result


def _unmerged(public: Public) -> dict[str, Any]:
    plan = uniform_plan(public.spec, "identity", "squared_attn")
    weights, pixels = random_weights(public, plan, 0), random_image(public, 0)
    ranges = measured_ranges(public, plan, weights, pixels)
    ranged = Public(public.spec, public.preprocessing, public.class_names, ranges)
    total = measure(ranged, plan, weights, pixels, protocol(PROTOCOL), Rewrites(merge_mlp=False)).total
    return {"sent_bytes": total.sent_bytes, "rounds": total.rounds}


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("sent_bytes", "rounds", "max_logit_error")}


if __name__ == "__main__":
    main()

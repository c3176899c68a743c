"""AND counts of every circuit, beside the paper's ratios, each checked on 10,000 inputs.

python -m benchmarks.circuits            # writes docs/results/circuits.json and prints it
python -m benchmarks.circuits --table    # also counts the shipped cost table again
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.circuits_tables import write_tables
from benchmarks.garbled_run import run_two_processes
from benchmarks.paper_totals import (
    TINY_IMAGENET_GELU_TOKENS,
    TINY_IMAGENET_SOFTMAX_ROWS,
    UNSTATED,
    VIT_TINY,
    computable_totals,
    square_floor,
)
from privit.cost.estimate import breakdown, estimate
from privit.cost.gates.circuits import floating, integer
from privit.cost.gates.circuits.functions import (
    FUNCTIONS,
    SETTINGS,
    Function,
    Setting,
    count,
    evaluate_masked,
)
from privit.cost.gates.circuits.gates import Bits, Gates, Plain, to_wires
from privit.cost.gates.profiles import PAPER_CONSTANTS, WITHOUT_SQUARE, profile_names
from privit.plan import plan_from_counts, uniform_plan

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cost.md"
RESULTS = ROOT / "docs" / "results" / "circuits.json"
TABLE = ROOT / "src" / "privit" / "cost" / "tables" / "circuits.json"

# Sequence lengths and widths of the models people use: digits, CIFAR and ImageNet backbones.
TOKENS = (17, 50, 65, 145, 196, 197, 198, 257, 577)
WIDTHS = (64, 128, 192, 256, 384, 768, 1024)
CHECKED_INPUTS = 10_000

_PAPER_FUNCTIONS = {"squared_attn": "square"}


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """The tanh form of GELU, which float32 computes; at most 4.8e-4 away from x Phi(x)."""
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def multiply_low(gates: Gates, a: Bits, b: Bits, width: int) -> Bits:
    """The low `width` bits of the product: published tables of gates list it, privit needs whole products."""
    total = integer.extend(gates.mask(b[0], a[:width]), width)
    for j, bit in enumerate(b[1:width], start=1):
        row = integer.extend(gates.mask(bit, a[: width - j]), width - j)
        total = total[:j] + integer.add(gates, total[j:], row)
    return total


def count_table() -> dict[str, Any]:
    """AND gates of every setting, function and common length, as shipped with the package."""
    lengths = {name: (1,) for name, entry in FUNCTIONS.items() if not entry.vector}
    lengths |= dict.fromkeys(("maximum", "softmax", "relu_softmax", "two_quad"), TOKENS)
    lengths["layer_norm"] = WIDTHS
    return {
        "made_by": "python -m benchmarks.circuits --table",
        "and_gates": {
            setting: {
                name: {str(n): count(name, setting, n).ands for n in sizes} for name, sizes in lengths.items()
            }
            for setting in SETTINGS
        },
    }


def arithmetic() -> dict[str, int]:
    """AND gates of the arithmetic without shares."""
    counts = {}
    a, b = (to_wires(np.zeros((1, 1), np.int64), 32) for _ in range(2))
    operations = {
        "integer add 32": lambda g: integer.add(g, a, b),
        "integer multiply 32x32 to 32": lambda g: multiply_low(g, a, b, 32),
        "integer multiply 32x32 to 64": lambda g: integer.multiply(g, a, b),
        "integer square 32 to 64": lambda g: integer.square(g, a),
        "integer divide 32": lambda g: integer.divide(g, a, b, 32),
        "integer square root 32": lambda g: integer.square_root(g, a),
        "float32 add": lambda g: floating.add(g, a, b),
        "float32 multiply": lambda g: floating.multiply(g, a, b),
        "float32 divide": lambda g: floating.divide(g, a, b),
        "float32 square root": lambda g: floating.square_root(g, a),
        "float32 add, with infinity and NaN": lambda g: floating.add(g, a, b, special=True),
        "float32 multiply, with infinity and NaN": lambda g: floating.multiply(g, a, b, special=True),
        "float32 divide, with infinity and NaN": lambda g: floating.divide(g, a, b, special=True),
    }
    for name, operation in operations.items():
        gates = Plain()
        operation(gates)
        counts[name] = gates.ands
    return counts


def check(entry: Function, where: Setting, length: int, inputs: int = CHECKED_INPUTS) -> dict[str, Any]:
    """The largest error of one masked function over `inputs` random inputs, in units of the last place."""
    rng = np.random.default_rng(0)
    values = entry.sample(rng, (inputs, length))
    on_float = where.number == "float32" and entry.name != "relu"
    reference = gelu_tanh if entry.name == "gelu" and on_float else entry.reference
    worst = 0.0
    for part in np.array_split(values, max(inputs * length // 200_000, 1)):
        result, gates = evaluate_masked(entry, where, part, rng)
        expected = reference(where.form.round(part) * where.unit)
        scale = where.unit if not on_float else where.unit + entry.float_bound * np.maximum(1, abs(expected))
        worst = max(worst, float((np.abs(result - expected) / scale).max()))
    bound = entry.fixed_bound if not on_float else 1.0
    return {
        "ands": gates.ands,
        "inputs": inputs,
        "largest_error_units": round(worst, 3),
        "bound_units": bound,
        "within_bound": worst <= bound + 1e-9,
    }


def paper_ratios() -> list[dict[str, Any]]:
    """The paper's seven constants beside ours, in each setting."""
    rows = []
    for operator, points in PAPER_CONSTANTS.items():
        for length, constant in points.items():
            name = _PAPER_FUNCTIONS.get(operator, operator)
            row: dict[str, Any] = {"function": f"{name}({length})", "paper_relu_ops": constant}
            for setting in SETTINGS:
                vector = FUNCTIONS[name].vector
                ands = count(name, setting, length).ands if vector else length * count(name, setting, 1).ands
                row[setting] = {"ands": ands, "relu_ops": round(ands / count("relu", setting, 1).ands, 1)}
            rows.append(row)
    return rows


def garbled() -> list[dict[str, Any]]:
    """ReLU, GELU and Softmax(197) garbled and evaluated between two processes."""
    rng = np.random.default_rng(0)
    tokens = VIT_TINY.tokens
    jobs = [("relu", "fixed31-prime31", (4096, 1)), ("gelu", "fixed32-ring32", (4096, 1))]
    jobs += [("softmax", "fixed32-ring32", (4, tokens)), ("softmax", "float32-prime31", (1, tokens))]
    return [run_two_processes(f, s, FUNCTIONS[f].sample(rng, shape)).to_json() for f, s, shape in jobs]


def paper_totals() -> dict[str, Any]:
    """Every total the paper prints: computed where it can be, with the reason where it cannot."""
    return {
        "computable": [
            {
                "where": t.where,
                "printed": t.printed,
                "computed": round(t.computed, 4),
                "difference": round(t.difference, 4),
            }
            for t in computable_totals()
        ],
        "not_computable": [vars(u) for u in UNSTATED],
        "vit_tiny_with_nothing_kept": {p: square_floor(profile=p) for p in ("paper", "paper-without-square")},
    }


def models() -> list[dict[str, Any]]:
    """ViT-Tiny dense and as the paper's 200/998 plan, in every profile: one ratio for each, never across."""
    dense = uniform_plan(VIT_TINY)
    kept = plan_from_counts(VIT_TINY, TINY_IMAGENET_GELU_TOKENS, TINY_IMAGENET_SOFTMAX_ROWS)
    rows = []
    for base in profile_names():
        for name in (base, base + WITHOUT_SQUARE):
            before, after = estimate(VIT_TINY, dense, name), estimate(VIT_TINY, kept, name)
            row = {"profile": name, "unit": before.unit, "dense": before.total, "plan": after.total}
            shares = {part: round(cost / after.total, 3) for part, cost in breakdown(after).items()}
            rows.append(row | {"saved": round(before.ratio(after), 2), "plan_shares": shares})
    return rows


def main() -> dict[str, Any]:
    """Writes docs/results/circuits.json, and with --table the shipped cost table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="also count the shipped cost table again")
    if parser.parse_args().table:
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        TABLE.write_text(json.dumps(count_table(), indent=1) + "\n")
    functions = {}
    for setting, where in SETTINGS.items():
        for name, entry in FUNCTIONS.items():
            length = (VIT_TINY.width if name == "layer_norm" else VIT_TINY.tokens) if entry.vector else 1
            print(f"{setting} {name}({length})", file=sys.stderr)
            functions[f"{setting} {name}({length})"] = check(entry, where, length)
    results = {
        "made_by": "python -m benchmarks.circuits",
        "arithmetic_ands": arithmetic(),
        "functions": functions,
        "paper_ratios": paper_ratios(),
        "garbled": garbled(),
        "paper_totals": paper_totals(),
        "vit_tiny": models(),
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    write_tables(PAGE, results)
    print(json.dumps(results))
    return results


if __name__ == "__main__":
    main()

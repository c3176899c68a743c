"""The tables of docs/cost.md, from docs/results/circuits.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from privit.cost.gates.circuits.functions import FUNCTIONS, SETTINGS

Rows = list[list[str]]


def write_tables(page: Path, results: dict[str, Any]) -> None:
    """Puts each table between its markers `<!-- NAME -->` and `<!-- /NAME -->` on the page."""
    text = page.read_text()
    for name, table in _TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"{page.name} has no place for the table {name}")
        lines = "\n".join("| " + " | ".join(row) + " |" for row in table(results))
        text = pattern.sub(lambda found, lines=lines: found[1] + lines + "\n" + found[2], text)
    page.write_text(text)


def _header(*names: str) -> Rows:
    return [list(names), ["---", *["---:"] * (len(names) - 1)]]


def _ratios(results: dict[str, Any]) -> Rows:
    rows = _header("function", "paper", *(f"{name}" for name in SETTINGS))
    for row in results["paper_ratios"]:
        ours = [f"{row[s]['ands']:,} = {row[s]['relu_ops']:,g}" for s in SETTINGS]
        rows.append([row["function"], f"{row['paper_relu_ops']:,}", *ours])
    return rows


def _arithmetic(results: dict[str, Any]) -> Rows:
    return _header("operation", "ANDs") + [[k, f"{v:,}"] for k, v in results["arithmetic_ands"].items()]


def _accuracy(results: dict[str, Any]) -> Rows:
    rows = _header(
        "function", "domain", "ANDs, fixed32-ring32", "largest error", "bound", "ANDs, float32-prime31"
    )
    for key, found in results["functions"].items():
        where, name = key.split(" ")
        if where != "fixed32-ring32":
            continue
        other = results["functions"][f"float32-prime31 {name}"]
        domain = FUNCTIONS[name.split("(")[0]].domain.replace("|", "\\|")
        error, bound = f"{found['largest_error_units']:g}", f"{found['bound_units']:g}"
        rows.append([name, domain, f"{found['ands']:,}", error, bound, f"{other['ands']:,}"])
    return rows


def _garbled(results: dict[str, Any]) -> Rows:
    rows = _header("function", "circuits", "ANDs", "runs", "table bytes", "bytes an AND", "= plain", "ANDs/s")
    for run in results["garbled"]:
        rows.append(
            [
                f"{run['function']}({run['length']})",
                run["setting"],
                f"{run['ands']:,}",
                str(run["batch"]),
                f"{run['table_bytes']:,}",
                f"{run['bytes_per_and']:g}",
                "yes" if run["equal_to_plain"] else "NO",
                f"{run['ands_per_second']:,}",
            ]
        )
    return rows


def _models(results: dict[str, Any]) -> Rows:
    rows = _header("profile", "dense (M)", "200/998 plan (M)", "saved", "GELU", "softmax", "x^2", "LayerNorm")
    for row in results["vit_tiny"]:
        shares = [f"{share:.0%}" for share in row["plan_shares"].values()]
        rows.append(
            [
                row["profile"],
                f"{row['dense'] / 1e6:,.1f}",
                f"{row['plan'] / 1e6:,.1f}",
                f"{row['saved']}x",
                *shares,
            ]
        )
    return rows


def _computable(results: dict[str, Any]) -> Rows:
    rows = _header("total (M ReLUOps)", "printed", "computed", "difference")
    for row in results["paper_totals"]["computable"]:
        numbers = f"{row['printed']:.2f}", f"{row['computed']:.3f}", f"{row['difference']:+.3f}"
        rows.append([row["where"], *numbers])
    return rows


def _unstated(results: dict[str, Any]) -> Rows:
    rows = [["printed totals", "why they cannot be computed"], ["---", "---"]]
    for row in results["paper_totals"]["not_computable"]:
        numbers = ", ".join(f"{n:g}" for n in row["printed"])
        rows.append([f"{row['where']}: {numbers}" if numbers else row["where"], row["reason"]])
    return rows


_TABLES = {
    "ratios": _ratios,
    "arithmetic": _arithmetic,
    "accuracy": _accuracy,
    "garbled": _garbled,
    "models": _models,
    "computable": _computable,
    "unstated": _unstated,
}

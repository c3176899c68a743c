"""Verbs of cost: cost, calibrate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from privit.cli.output import megabytes, note, percent, show_fields, show_json, show_rows
from privit.cli.synthetic import Synthetic, read_artifact
from privit.errors import RequestError


def cost(
    artifact: Positional[Path | None] = None,
    synthetic: Synthetic = Synthetic(),  # noqa: B008 - tyro reads the default
    profile: str = "paper",
    protocol: str | None = None,
    network: str | None = None,
    batch: int = 1,
    explain: bool = False,
    unit: str = "seconds",
    figure: Path | None = None,
    table: bool = False,
    json: bool = False,
) -> None:
    """What a private prediction costs: ReLUOps, AND gates, or bytes, rounds and seconds.

    Args:
        artifact: The artifact's folder; or give --model for a synthetic plan.
        synthetic: A plan without training.
        profile: paper, circuits, circuits-NUMBER-RECOVERY, each also -without-square; or spu.
        protocol: cheetah, aby3 or semi2k-benchmark, for --profile spu.
        network: lan, wan or RTT,BANDWIDTH (ms, Mbit/s), for --profile spu.
        batch: How many images a query answers, for --profile spu; all figures are of the query.
        explain: Per layer and kind, what to remove next.
        unit: bytes, rounds or seconds, for --explain with --profile spu.
        figure: Write the breakdown by kind as a picture.
        table: What one of each thing costs in this profile, and nothing of a plan.
        json: Print one JSON object.
    """
    from privit.cost.estimate import estimate, plot_breakdown

    if table:
        _show_terms(profile, protocol, json)
        return
    subject = read_artifact(artifact, synthetic)
    options: dict[str, Any] = {"protocol": protocol, "network": network}
    options = {name: value for name, value in options.items() if value is not None}
    if profile == "spu":
        options |= {"ranges": subject.public.ranges, "guard": subject.public.guard, "batch": batch}
    elif batch != 1:
        raise RequestError(f"the profile {profile} prices one image", "--batch belongs to --profile spu")
    found = estimate(subject.spec, subject.plan, profile, **options)
    if figure is not None:
        if profile == "spu":
            raise RequestError("the figure shows one unit by kind", "use it with --profile paper or circuits")
        note(f"wrote {plot_breakdown(found, figure)}")
    result = found if isinstance(found, dict) else found.to_json()
    if explain:
        result = result | {"explain": _explained(subject, profile, unit, options)}
    if json:
        show_json(result)
    else:
        _show(result)


def calibrate(
    out: Positional[Path],
    protocol: tuple[str, ...] = ("semi2k-benchmark",),
    quick: bool = False,
    link_only: bool = False,
) -> None:
    """Measure every operation of the engine on this machine and write a table for --profile spu.

    Args:
        out: A folder for the tables, or a .json file for one protocol.
        protocol: Which protocols to measure.
        quick: Fewer sizes.
        link_only: Measure only what running between processes adds, for a table that is there.
    """
    from privit.serve.measure.calibrate import calibrate as run_calibrate
    from privit.serve.measure.calibrate import measure_link_again

    if link_only:
        measure_link_again(out)
    else:
        run_calibrate(protocol, out, quick, progress=lambda what, done, total: note(f"{done}/{total} {what}"))
    note(f"wrote {out}")


def _explained(subject: Any, profile: str, unit: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    from privit.cost.estimate import explain
    from privit.cost.spu.explain import explain_spu

    if profile == "spu":
        return [vars(removal) for removal in explain_spu(subject.spec, subject.plan, unit, **options)]
    return [vars(removal) for removal in explain(subject.spec, subject.plan, profile)]


def _show_terms(profile: str, protocol: str | None, json: bool) -> None:
    from privit.cost.spu.terms import operator_terms, protocol_terms

    columns, rows = protocol_terms(protocol or "cheetah") if profile == "spu" else operator_terms(profile)
    title = f"profile {profile}" + (f", {protocol or 'cheetah'}" if profile == "spu" else "")
    if json:
        show_json({"profile": title, "terms": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        show_rows(title, columns, rows)


def _show(result: dict[str, Any]) -> None:
    fields = {k: v for k, v in result.items() if not isinstance(v, (list, dict))}
    for name in ("sent_bytes", "setup_bytes", "refill_bytes"):
        if name in fields:
            fields[name] = megabytes(fields[name])
    show_fields("cost (estimated)", fields)
    for name in ("layers", "operations"):
        if name in result:
            rows = [(r["name"], megabytes(r["sent_bytes"]), r["rounds"]) for r in result[name]]
            show_rows(f"by {name.removesuffix('s')}", (name.removesuffix("s"), "sent", "rounds"), rows)
    if "by_part" in result:
        total = sum(result["by_part"].values()) or 1
        rows = [(part, value, percent(value / total)) for part, value in result["by_part"].items()]
        show_rows("by kind", ("part", "cost", "share"), rows)
    if "explain" in result:
        removals = [
            (
                f"layer {r['layer']}",
                r["operator"],
                r["sites"],
                _amount(r["site_saving"], r.get("unit")),
                _amount(r["group_saving"], r.get("unit")),
                percent(r["share"]),
            )
            for r in result["explain"]
        ]
        columns = ("where", "operator", "sites", "saved by one", "saved by all", "share of all")
        show_rows("what to remove next", columns, removals)


def _amount(value: float, unit: str | None) -> Any:
    """A saving as it is read: the gate profiles' own unit where none is named."""
    if unit is None:
        return value
    return {"bytes": megabytes(round(value)), "rounds": round(value), "seconds": f"{value:.3f} s"}[unit]


VERBS: dict[str, Callable[..., None]] = {"cost": cost, "calibrate": calibrate}

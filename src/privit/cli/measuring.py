"""Verbs that measure a model: eval, bench, compile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from privit.cli import ranges
from privit.cli.output import counter, megabytes, note, percent, show_fields, show_json, show_rows
from privit.cli.synthetic import Synthetic, read_artifact
from privit.errors import RequestError


def evaluate(
    artifact: Positional[Path],
    on: Literal["plain", "simulated", "private"] = "plain",
    images: int | None = None,
    protocol: str = "cheetah",
    data: str | None = None,
    json: bool = False,
) -> None:
    """Accuracy on test images, and agreement with plaintext.

    Args:
        artifact: The artifact's folder.
        on: plain, simulated (both parties in this process) or private (two processes).
        images: How many test images; the same command goes on where it stopped.
        protocol: cheetah, aby3 or, simulated only, semi2k-benchmark.
        data: Another data set than the one the model was trained on.
        json: Print one JSON object.
    """
    if on == "private":
        from privit.serve.measure.private import evaluate_private

        result = evaluate_private(
            artifact, data=data, images=images or 20, protocol=protocol, progress=counter("private")
        )
    else:
        from privit.serve.measure.evaluate import evaluate as run_evaluate

        result = run_evaluate(
            artifact, on=on, protocol=protocol, data=data, images=images, progress=counter(on)
        )
    if json:
        show_json(result)
    else:
        _show_evaluation(artifact, result)


def bench(
    artifact: Positional[Path | None] = None,
    synthetic: Synthetic = Synthetic(),  # noqa: B008 - tyro reads the default
    protocol: str = "cheetah",
    against: str = "",
    network: str | None = None,
    batch: int = 1,
    write_ranges: Path | None = None,
    products: bool = False,
    figure: Path | None = None,
    json: bool = False,
) -> None:
    """Bytes, rounds and seconds of a private prediction, per layer and operation.

    Args:
        artifact: The artifact's folder; or give --model for a synthetic plan.
        synthetic: A plan without training, with random weights.
        protocol: cheetah, aby3 or semi2k-benchmark (not private).
        against: Also dense, dense-rewritten, scatter (separated by commas), in the same run.
        network: lan, wan or RTT,BANDWIDTH (ms, Mbit/s): two processes through a shaped tunnel.
        batch: How many images the query answers; all figures are of the query.
        write_ranges: Write the ranges that were used to this file, for --ranges of cost, bench and compile.
        products: Also run every shape of matrix product alone, for its seconds.
        figure: Draw the time line of the query into this file (.png or .svg).
        json: Print one JSON object.
    """
    from privit.serve.measure.bench import bench as run_bench

    subject = read_artifact(artifact, synthetic)
    if write_ranges is not None:
        ranges.write_ranges(write_ranges, subject.public.ranges)
    names = tuple(filter(None, against.split(",")))
    if network is not None and (products or figure is not None):
        hint = "leave --network away for the seconds of layers and operations"
        raise RequestError("processes report their totals alone", hint)
    result = run_bench(
        subject,
        protocol=protocol,
        against=names,
        network=network,
        seed=synthetic.seed,
        progress=note,
        products=products,
        batch=batch,
    )
    if figure is not None:
        from privit.report.figures.style import png, svg
        from privit.report.figures.timeline import draw_timeline

        drawn = draw_timeline(result)
        figure.write_bytes(svg(drawn) if figure.suffix == ".svg" else png(drawn))
        note(f"wrote {figure}")
    if json:
        show_json(result)
    else:
        _show_bench(result)


def compile(
    artifact: Positional[Path | None] = None,
    synthetic: Synthetic = Synthetic(),  # noqa: B008 - tyro reads the default
    protocol: str = "cheetah",
    json: bool = False,
) -> None:
    """The program that both parties run: its hash, and its costly operations per layer.

    Args:
        artifact: The artifact's folder, or its client part; or give --model for a synthetic plan.
        synthetic: A plan without training.
        protocol: cheetah, aby3 or semi2k-benchmark (not private); products are cut for cheetah alone.
        json: Print one JSON object.
    """
    from privit.serve.compile.costly import describe_program

    result = describe_program(read_artifact(artifact, synthetic), protocol)
    if json:
        show_json(result)
        return
    show_fields("program", {k: v for k, v in result.items() if k != "layers"})
    rows = [
        (layer["name"], row["operation"], " x ".join(map(str, row["sizes"])), row["times"])
        for layer in result["layers"]
        for row in layer["operations"]
    ]
    show_rows("operations that make the parties talk", ("layer", "operation", "sizes", "times"), rows)


def _show_evaluation(artifact: Path, result: dict[str, Any]) -> None:
    shown = dict(result)
    for name in ("accuracy", "agreement"):
        if isinstance(shown.get(name), float):
            shown[name] = percent(shown[name])
    show_fields(f"{artifact}", {k: v for k, v in shown.items() if not isinstance(v, (list, dict))})


def _show_bench(result: dict[str, Any]) -> None:
    graphs = {"this plan": result} | result.get("against", {})
    rows = [
        (
            name,
            megabytes(g["sent_bytes"]),
            g["rounds"],
            f"{g['seconds']:.1f}",
            megabytes(g.get("setup_bytes", 0)),
        )
        for name, g in graphs.items()
    ]
    title = (
        f"{result['protocol']} ({'private' if result['private'] else 'NOT private'}, {result['measured_on']})"
    ) + (f", a query of {result['batch']} images" if result["batch"] > 1 else "")
    show_rows(title, ("graph", "sent", "rounds", "seconds", "set-up"), rows)
    _show_seconds(result)


def _show_seconds(result: dict[str, Any]) -> None:
    """Layers, operations, parties and products, where they were measured."""
    for key in ("layers", "operations"):
        rows = [
            (s["name"], megabytes(s["sent_bytes"]), s["rounds"], f"{s['seconds']:.2f}")
            for s in result.get(key, [])
        ]
        if rows:
            one = key.removesuffix("s")
            show_rows(f"by {one}", (one, "sent", "rounds", "seconds"), rows)
    parties = [
        (p["name"], f"{p['computing_seconds']:.2f}", f"{p['waiting_seconds']:.2f}")
        for p in result.get("parties", [])
    ]
    if parties:
        show_rows("by party", ("party", "computing", "waiting"), parties)
    products = [
        (
            p["name"],
            " x ".join(map(str, p["sizes"])),
            p["times"],
            *((f"{p['seconds_each']:.3f}", megabytes(p["sent_bytes_each"])) if "seconds" in p else ("", "")),
        )
        for p in result.get("products", [])
    ]
    if products:
        columns = ("product", "rows x inner x columns", "times", "seconds alone", "sent alone")
        show_rows("matrix products", columns, products)


VERBS: dict[str, Callable[..., None]] = {"eval": evaluate, "bench": bench, "compile": compile}

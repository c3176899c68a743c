"""Verbs that measure: eval, bench, compile, cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from privit.artifact import Public, load_artifact
from privit.cli.output import megabytes, percent, show_fields, show_json, show_rows
from privit.errors import RequestError
from privit.plan import Plan, plan_from_counts, uniform_plan
from privit.spec import Spec


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
        from privit.serve.private import evaluate_private

        result = evaluate_private(artifact, data=data, images=images or 20, protocol=protocol)
    else:
        from privit.serve.evaluate import evaluate as run_evaluate

        result = run_evaluate(artifact, on=on, protocol=protocol, data=data, images=images)
    if json:
        show_json(result)
    else:
        _show_evaluation(artifact, result)


def bench(
    artifact: Positional[Path | None] = None,
    model: str | None = None,
    kept_gelu_tokens: str | None = None,
    kept_softmax_rows: str | None = None,
    image_size: int | None = None,
    seed: int = 0,
    protocol: str = "cheetah",
    against: str = "",
    network: str | None = None,
    json: bool = False,
) -> None:
    """Bytes, rounds and seconds of a private prediction, per layer and operation.

    Args:
        artifact: The artifact's folder; or give --model for a synthetic plan with random weights.
        model: Name of a timm ViT, such as vit_tiny_patch16_224.
        kept_gelu_tokens: GELU tokens that each layer keeps, separated by commas.
        kept_softmax_rows: Softmax rows that each layer keeps, separated by commas.
        image_size: Another image size than the model's own.
        seed: Where the kept sites lie, and the random weights.
        protocol: cheetah, aby3 or semi2k-benchmark (not private).
        against: Also dense, dense-rewritten, scatter (separated by commas), in the same run.
        network: lan, wan or RTT,BANDWIDTH (ms, Mbit/s): two processes through a shaped tunnel.
        json: Print one JSON object.
    """
    from privit.serve.bench import bench as run_bench

    subject = _subject(artifact, model, kept_gelu_tokens, kept_softmax_rows, image_size, seed)
    names = tuple(filter(None, against.split(",")))
    result = run_bench(*subject, protocol=protocol, against=names, network=network, seed=seed)
    if json:
        show_json(result)
    else:
        _show_bench(result)


def _subject(
    artifact: Path | None,
    model: str | None,
    gelu_tokens: str | None,
    softmax_rows: str | None,
    image_size: int | None,
    seed: int,
) -> tuple[Public | Spec, Plan, dict[str, Any] | None]:
    if (artifact is None) == (model is None):
        raise RequestError("give an artifact's folder or --model, one of them", "privit bench out")
    if artifact is not None:
        loaded = load_artifact(artifact)
        return loaded.public, loaded.plan, loaded.weights
    assert model is not None
    spec = named_spec(model, image_size)
    if gelu_tokens is None and softmax_rows is None:
        return spec, uniform_plan(spec), None
    full = [spec.tokens] * spec.depth, [spec.tokens * block.heads for block in spec.blocks]
    counts = [
        full[i] if text is None else _counts(text) for i, text in enumerate((gelu_tokens, softmax_rows))
    ]
    return spec, plan_from_counts(spec, counts[0], counts[1], seed), None


def named_spec(model: str, image_size: int | None = None) -> Spec:
    """The architecture of a timm ViT, random weights, without a download."""
    from privit.catalog import catalog_spec

    return catalog_spec(model, image_size)


def _counts(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(
            f"{text!r} is not a list of counts", "write 127,1,41,... with a count per layer"
        ) from None


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
    )
    show_rows(title, ("graph", "sent", "rounds", "seconds", "set-up"), rows)
    layers = [(s["name"], megabytes(s["sent_bytes"]), s["rounds"]) for s in result.get("layers", [])]
    if layers:
        show_rows("by layer", ("layer", "sent", "rounds"), layers)
    operations = [(s["name"], megabytes(s["sent_bytes"]), s["rounds"]) for s in result.get("operations", [])]
    if operations:
        show_rows("by operation", ("operation", "sent", "rounds"), operations)


VERBS: dict[str, Callable[..., None]] = {"eval": evaluate, "bench": bench}

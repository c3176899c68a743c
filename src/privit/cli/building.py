"""Verbs that build a model: demo, teacher, search, fit, finetune, export."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional

from privit.cli.budgeting import (
    measured_budgets,
    show_kept,
    site_caps,
    with_choices,
    with_cost_budgets,
    with_site_budgets,
)
from privit.cli.output import note, percent, show_fields, show_json
from privit.cli.synthetic import kept_counts, token_counts
from privit.config import FinetuneConfig, check_config, from_json, to_json
from privit.errors import RequestError
from privit.operators import FITTED
from privit.presets import BEST, BEST_SEARCH, PAPER, Preset, preset, with_strategy
from privit.spec import KINDS

Settings = Annotated[
    tuple[str, ...],
    tyro.conf.arg(name="set", metavar="NAME=VALUE ...", help="Any other setting, values as in TOML."),
]


def demo(out: Path = Path("demo"), seed: int = 0, json: bool = False) -> None:
    """The whole way on bundled data: a teacher, PriViT as published, the best known way, private answers.

    Args:
        out: Folder for runs, artifact and what is shown.
        seed: Another seed gives another run.
        json: Print one JSON object.
    """
    from privit.demo import run_demo, show_demo

    result = run_demo(out, seed)
    if json:
        show_json(result)
    else:
        show_demo(result)


def teacher(
    model: Positional[str],
    data: str,
    out: Path = Path("runs/teacher"),
    preset: str = BEST,
    image_size: int | None = None,
    epochs: int | None = None,
    train_limit: int | None = None,
    seed: int = 0,
    scratch: bool = False,
    set_: Settings = (),
    json: bool = False,
) -> None:
    """Fine-tune a pretrained model on a data set.

    Args:
        model: timm:NAME, hf:NAME, a local file, or vit:width=64,... for a model from scratch.
        data: digits, cifar10, ..., hf:NAME, or a folder of images or parquet files.
        out: The run's folder; the same command goes on where it stopped.
        preset: best (epochs from the number of images), or settings that belong together: paper, digits, ...
        image_size: Resize the model to this image size.
        epochs: How long to train.
        train_limit: Use this many training images, balanced over classes.
        seed: For initialisation, order and augmentation.
        scratch: Start from random weights instead of pretrained ones.
        set_: Any other setting.
        json: Print one JSON object.
    """
    from privit.building.settings import teacher_settings
    from privit.train.teacher import train_teacher

    best = preset == BEST
    config = teacher_settings(model, data, train_limit, scratch) if best else _preset(preset).teacher
    if scratch:
        config = replace(config, pretrained=False)
    named = {"image_size": image_size, "epochs": epochs, "train_limit": train_limit, "seed": seed}
    config = _changed(config, named, set_)
    _finish(f"teacher {out}", train_teacher(model, data, out, config), json)


def fit(
    run: Positional[Path],
    out: Path = Path("runs/fit"),
    gelu: str = FITTED["gelu"],
    softmax: str = FITTED["softmax"],
    norm: str | None = None,
    kept_gelu_tokens: str | None = None,
    kept_softmax_rows: str | None = None,
    kept_norms: str | None = None,
    tokens: str | None = None,
    images: int = 512,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Replace every GELU and softmax (and LayerNorm) by a stand-in fitted to the teacher, without training.

    Counts per layer keep so many sites exact: those of `privit cost` with the same counts and seed.

    Args:
        run: The teacher's run.
        out: The run's folder; `privit finetune` and `privit export` take it.
        gelu: Stand-in for GELU: quadratic or affine (or an unfitted one).
        softmax: Stand-in for softmax: quadratic_attn, linear_attn, static_attn or constant_attn (or an
            unfitted one).
        norm: Stand-in for LayerNorm: reused_norm (the first stays exact), linear_norm or fixed_norm; all
            LayerNorms stay exact if absent.
        kept_gelu_tokens: GELU tokens that each layer keeps exact, separated by commas, or one number for
            every layer; none if absent.
        kept_softmax_rows: Softmax rows that each layer keeps exact, likewise.
        kept_norms: Exact LayerNorms of each block (0 to 2, norm1 first), likewise; --norm (reused_norm if
            absent) stands for the others, the last one of the model is exact.
        tokens: Tokens in each block, class token included, separated by commas; patches are pooled where they
            fall.
        images: How many training images to fit on.
        seed: Which images, and where the kept sites lie.
        json: Print one JSON object.
    """
    from privit.train.training_free import NOTHING, TrainingFreeConfig, fit_run

    stand_in = FITTED | {"gelu": gelu, "softmax": softmax} | ({"norm": norm} if norm else {})
    budget = replace(NOTHING, sites=NOTHING.sites | ({"norm": 0} if norm else {}))
    counts = tuple(token_counts(tokens)) if tokens else ()
    given = {"gelu": kept_gelu_tokens, "softmax": kept_softmax_rows, "norm": kept_norms}
    kept = {kind: tuple(kept_counts(text)) for kind, text in given.items() if text is not None}
    config = TrainingFreeConfig((budget,), stand_in=stand_in, tokens=counts, kept=kept)
    config = replace(config, fit=replace(config.fit, images=images, seed=seed))
    _finish(f"fit {out}", fit_run(run, out, config), json)


def search(
    run: Positional[Path],
    out: Path = Path("runs/search"),
    keep: tuple[float, ...] = (),
    gelu_budget: float | None = None,
    softmax_budget: float | None = None,
    norm_budget: float | None = None,
    norms: bool = False,
    tokens: str | None = None,
    preset: str = BEST,
    strategy: int | None = None,
    fitted: bool = False,
    no_training: bool = False,
    max_seconds: tuple[float, ...] = (),
    max_bytes: tuple[float, ...] = (),
    max_rounds: tuple[float, ...] = (),
    max_relu_ops: tuple[float, ...] = (),
    protocol: str = "cheetah",
    network: str = "lan",
    measure: bool = False,
    seed: int = 0,
    set_: Settings = (),
    json: bool = False,
) -> None:
    """Choose what stays exact under a budget, and fit what stands elsewhere.

    A budget is a share or count of sites, or what one prediction may cost: then the split between kinds and
    layers is found. Budgets in several units (and in sites) are all kept to. The best known way fits
    stand-ins for every kind to the teacher and chooses by the loss they cause, without training; --preset
    paper trains weights and switches together, as the paper does.

    Args:
        run: The teacher's run.
        out: The run's folder; the same command goes on where it stopped.
        keep: Share of the sites of each kind that may stay; several shares give several plans in one descent.
        gelu_budget: GELU sites that may stay: a count, or a share below 1.
        softmax_budget: Softmax sites that may stay: a count, or a share below 1.
        norm_budget: LayerNorms that may stay exact: a count, or a share below 1. The first always does.
        norms: Search LayerNorms too, with another preset than best; without, all of them stay exact.
        tokens: Tokens in each block, class token included, separated by commas; patches are pooled where they
            fall. auto: the budget in cost chooses, with --no-training.
        preset: best, or a trained search with settings that belong together: paper, plain or digits.
        strategy: One of the paper's strategies 1 to 5 (with --preset paper unless another is given).
        fitted: Train as the paper does, from stand-ins fitted to the teacher.
        no_training: Fit stand-ins and choose sites by the loss they cause, in minutes.
        max_seconds: What one prediction may take on --network; several budgets give several plans.
        max_bytes: What one party may send, such as 60e6.
        max_rounds: Send actions that one prediction may take.
        max_relu_ops: The paper's unit.
        protocol: cheetah, aby3 or semi2k-benchmark, for seconds, bytes and rounds.
        network: lan, wan or RTT,BANDWIDTH (ms, Mbit/s), for seconds.
        measure: Afterwards run the found programs on the engine and put what they cost beside the prediction.
        seed: For order and augmentation.
        set_: Any other setting.
        json: Print one JSON object.
    """
    best = preset == BEST and strategy is None and not fitted
    chosen = PAPER if preset == BEST else _preset(preset)
    if strategy is not None:
        chosen = with_strategy(chosen, strategy)
    search = BEST_SEARCH if best else chosen.search
    config, own = _changed(search, {"seed": seed}, set_), "stand_in" in _given(set_)
    auto, no_training = tokens == "auto", no_training or best
    if auto and not no_training:
        raise RequestError("--tokens auto chooses without training", "add --no-training, or give the tokens")
    if tokens is not None and not auto:
        config = replace(config, tokens=tuple(token_counts(tokens)))
    if (norms or norm_budget is not None) and "norm" not in config.kinds:
        config = replace(config, kinds=(*config.kinds, "norm"))
    given = {"gelu": gelu_budget, "softmax": softmax_budget, "norm": norm_budget}
    costs = {"seconds": max_seconds, "bytes": max_bytes, "rounds": max_rounds, "relu_ops": max_relu_ops}
    caps = site_caps(keep, given, config.kinds, best) if any(costs.values()) else {}
    priced = with_cost_budgets(config, costs, protocol, network, caps)
    if priced == config:
        config = with_site_budgets(config, keep, given, best)
    else:
        config, fitted = with_choices(priced, not own), fitted or not own
    if (fitted or no_training) and not own:
        config = replace(config, stand_in=dict(FITTED))
    check_config(config)
    if no_training:
        from privit.train.training_free import TrainingFreeConfig, search_without_training

        settings = replace(TrainingFreeConfig.of(config), choose_tokens=auto)
        found = search_without_training(run, out, settings)
        _close_search(out, found, measure, json)
        return
    from privit.train.search import search as run_search

    initial = None
    if fitted:
        from privit.train.fitting.fit import FitConfig
        from privit.train.training_free import fitted_start

        fitting = FitConfig(seed=seed)
        initial = fitted_start(run, config.granularity, config.stand_in, fitting, config.kinds, config.tokens)
    _close_search(out, run_search(run, out, config, initial), measure, json)


def _close_search(out: Path, result: dict[str, Any], measure: bool, json: bool) -> None:
    """Shows a search's result, with what its plans cost on the engine if that is asked for."""
    if measure and os.environ.get("RANK", "0") == "0":
        result = measured_budgets(out)
    if "predicted_cost" in result and not json:
        show_kept(result)
    _finish(f"search {out}", result, json)


def finetune(
    run: Positional[Path],
    out: Path = Path("runs/finetune"),
    budget: str | None = None,
    relu: bool = False,
    preset: str = BEST,
    epochs: int | None = None,
    seed: int = 0,
    set_: Settings = (),
    json: bool = False,
) -> None:
    """Train the weights on with the plan frozen.

    Args:
        run: The search's run.
        out: The run's folder; the same command goes on where it stopped.
        budget: Which of the search's budgets, by name; by default the last.
        relu: The GELUs that stay become ReLUs (PriViT-R).
        preset: best (epochs from the number of images), or settings that belong together: paper, digits, ...
        epochs: How long to train.
        seed: For order and augmentation.
        set_: Any other setting.
        json: Print one JSON object.
    """
    from privit.building.settings import finetune_settings
    from privit.train.finetune import finetune as run_finetune

    # What is no setting is said before a run is looked for.
    _changed(FinetuneConfig(), {}, set_)
    base = finetune_settings(run) if preset == BEST else _preset(preset).finetune
    config: FinetuneConfig = _changed(base, {"epochs": epochs, "seed": seed}, set_)
    if relu:
        config = replace(config, swap=config.swap | {"gelu": "relu"})
    _finish(f"finetune {out}", run_finetune(run, out, config, budget), json)


def export(
    run: Positional[Path], out: Path = Path("out"), no_guard: bool = False, json: bool = False
) -> None:
    """Write the artifact: out/server with the weights, out/client without.

    Args:
        run: A fine-tuned run (or a teacher's, which exports as the dense model).
        out: The artifact's folder.
        no_guard: Leave out the check that tells a client when values left their ranges.
        json: Print one JSON object.
    """
    from privit.exporting import export_and_try, in_words
    from privit.train.fixed_point.ranges import nearest_limit

    artifact, tried = export_and_try(run, out, guard=not no_guard, tell=note)
    summary = {
        "artifact": str(out),
        "guard": artifact.public.guard,
        "plan": artifact.plan.hash()[:16],
        **{f"kept_{kind}": sum(artifact.plan.kept(kind)) for kind in KINDS},
    }
    nearest = nearest_limit(artifact.public.ranges, artifact.spec)
    if json:
        show_json(summary | {"nearest_limit": vars(nearest), "tried": vars(tried)})
    else:
        said = in_words(tried)
        show_fields("exported", summary | {"nearest to a limit of the engine": str(nearest)} | said)


def _preset(name: str) -> Preset:
    return preset(name)


def _changed(config: Any, named: dict[str, Any], settings: tuple[str, ...]) -> Any:
    data = to_json(config) | {name: value for name, value in named.items() if value is not None}
    return from_json(type(config), data | _given(settings))


def _given(settings: tuple[str, ...]) -> dict[str, Any]:
    """What --set says, by name; a name may be written with - or _."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator:
            raise RequestError(f"{setting!r} is not a setting", "write NAME=VALUE, such as epochs=20")
        found[name.strip().replace("-", "_")] = _value(text.strip())
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _finish(title: str, result: dict[str, Any], json: bool) -> None:
    if os.environ.get("RANK", "0") != "0":
        return  # under torchrun, one process speaks for all
    if json:
        show_json(result)
        return
    shown = {name: value for name, value in result.items() if not isinstance(value, dict)}
    for name in ("accuracy", "validation_accuracy"):
        if isinstance(shown.get(name), float):
            shown[name] = percent(shown[name])
    show_fields(title, shown)


VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "teacher": teacher,
    "fit": fit,
    "search": search,
    "finetune": finetune,
    "export": export,
}

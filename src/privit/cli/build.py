"""The verb that does the whole way: build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tyro.conf import Positional

from privit.cli.output import note, show_json, show_rows


def build(
    model: Positional[str],
    data: str,
    out: Path = Path("out"),
    max_loss: tuple[float, ...] = (),
    max_seconds: tuple[float, ...] = (),
    max_bytes: tuple[float, ...] = (),
    max_rounds: tuple[float, ...] = (),
    keep: tuple[float, ...] = (),
    protocol: str = "cheetah",
    network: str = "lan",
    preset: str = "best",
    teacher: Path | None = None,
    image_size: int | None = None,
    train_limit: int | None = None,
    teacher_epochs: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    no_check: bool = False,
    json: bool = False,
) -> None:
    """The whole way from a model, data and a budget to an artifact, in one command.

    Teacher, choice, fit, fine-tuning, export and a check. Give at least one of --max-loss, --max-seconds,
    --max-bytes, --max-rounds and --keep; several are all kept to. Each stage is a run below --out, and the
    same command goes on where it stopped.

    Args:
        model: timm:NAME, hf:NAME, a local file, or vit:width=64,... for a model from scratch.
        data: digits, cifar10, ..., hf:NAME, or a folder of images or parquet files.
        out: Folder for runs, artifact and report.
        max_loss: Points of validation accuracy below the teacher: the model of the fewest predicted seconds.
        max_seconds: What one prediction may take on --network.
        max_bytes: What one party may send, such as 60e6.
        max_rounds: Send actions that one prediction may take.
        keep: Share of the GELUs and of the softmaxes that may stay exact.
        protocol: cheetah, aby3 or semi2k-benchmark (not private).
        network: lan, wan or RTT,BANDWIDTH (ms, Mbit/s).
        preset: best, or the way of paper, plain or digits.
        teacher: A finished teacher's run, instead of training one.
        image_size: Resize the model to this image size.
        train_limit: Use this many training images, balanced over classes.
        teacher_epochs: How long to train the teacher; from the number of images unless given.
        epochs: How long to fine-tune; from the number of images unless given.
        seed: For initialisation, order and augmentation.
        no_check: Leave out what is measured under MPC at the end.
        json: Print one JSON object.
    """
    from privit.building import build as run_build
    from privit.building.request import Request, one_amount
    from privit.building.table import COLUMNS, Row

    given = {"seconds": max_seconds, "bytes": max_bytes, "rounds": max_rounds}
    amounts = {unit: one_amount(f"max-{unit}", values) for unit, values in given.items()}
    request = Request(
        model,
        data,
        out,
        {unit: amount for unit, amount in amounts.items() if amount is not None},
        one_amount("keep", keep),
        one_amount("max-loss", max_loss),
        protocol,
        network,
        preset,
        teacher,
        image_size,
        train_limit,
        teacher_epochs,
        epochs,
        seed,
        not no_check,
    )
    result = run_build(request, note)
    if json:
        show_json(result)
        return
    rows = [Row(**entry).cells() for entry in result["models"]]
    show_rows(f"one prediction on {protocol}, over {network}", COLUMNS, rows)
    if found := result["check"]:
        note(f"{found['images']} images simulated: {found['agreement']:.0%} answered as in the clear")
    note(f"privit serve {out}/artifact/server --port 9000")
    note(f"privit query IMAGE --model {out}/artifact/client --server 127.0.0.1:9000")


VERBS: dict[str, Callable[..., None]] = {"build": build}

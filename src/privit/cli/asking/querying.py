"""Verbs of those who ask: query, page."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from privit.cli.output import megabytes, note, percent, show_csv, show_json, show_rows
from privit.errors import OutsideRanges, PrivitError, RequestError

if TYPE_CHECKING:
    from privit.serve.parties.client import Prediction

INSIDE = {True: "yes", False: "NO", None: "not guarded"}
"""How an answer's guard is shown."""


def query(
    files: Positional[tuple[Path, ...]],
    model: Path,
    server: str,
    images: Path | None = None,
    protocol: str = "cheetah",
    certs: Path | None = None,
    helper: str | None = None,
    batch: int = 1,
    csv: bool = False,
    json: bool = False,
) -> None:
    """Classify images privately: the server never sees them.

    Args:
        files: Image files.
        model: The artifact's client folder.
        server: HOST:PORT of the server.
        images: A folder: every image in it and below it, too.
        protocol: cheetah or aby3, as the server runs.
        certs: Folder made by `privit certs`, for mutual TLS.
        helper: HOST:PORT of the neutral third party, for aby3.
        batch: How many images may share a query and its rounds.
        csv: Print the answers as CSV.
        json: Print one JSON object, and nothing while it works.
    """
    from privit.artifact import load_artifact
    from privit.cli.asking.waiting import Waiting
    from privit.cost.progress import forecast
    from privit.data.images import open_image
    from privit.program.choices import batch_for
    from privit.serve.parties.client import connect
    from privit.serve.parties.watching import Watcher
    from privit.serve.wire.addresses import part_of

    if csv and json:
        raise RequestError("--csv and --json were both given", "choose one of them")
    paths = [*files, *images_below(images)]
    if not paths:
        raise RequestError("no image was given", "privit query cat.png --model out/client --server HOST:PORT")
    # Every file is read before anything is sent, so that a bad one costs nothing.
    for path in paths:
        open_image(path)
    batch = even_batch(len(paths), batch_for(protocol, batch).images)
    ahead = forecast(load_artifact(part_of(model, "client")), protocol, batch)
    result: dict[str, Any] = {"protocol": protocol, "batch": batch}
    predictions: list[dict[str, Any]] = []
    names = labels(paths)
    with Waiting(ahead, -(-len(paths) // batch), quiet=json) as waiting:
        try:
            watcher = Watcher(moved=waiting.moved)
            with connect(
                model, server, protocol, certs, helper, tell=waiting.say, watcher=watcher, batch=batch
            ) as client:
                result |= {"private": client.private, "measured_on": "processes"}
                result |= {"setup_bytes": client.setup.sent_bytes, "setup_rounds": client.setup.rounds}
                for start in range(0, len(paths), batch):
                    together = slice(start, start + batch)
                    waiting.next(_called(names[together]))
                    found = client.predict_batch(paths[together])
                    for path, each in zip(paths[together], found, strict=True):
                        predictions.append({"image": str(path), **_prediction(each)})
                    waiting.answered(found[-1], ", ".join(map(_answer, found)))
        except PrivitError:
            # What was answered before is not lost with the rest.
            if predictions:
                waiting.close()
                _show(result, predictions, names, csv, json)
            raise
    _show(result, predictions, names, csv, json)
    _refuse_outside(predictions)


def even_batch(images: int, most: int) -> int:
    """How many of the images go in each query: as few queries as `most` allows, all nearly equally full."""
    queries = -(-images // most)
    return -(-images // queries)


def _called(names: Sequence[str]) -> str:
    """What the images of one query are called."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _answer(found: Prediction) -> str:
    return f"{found.class_name} ({percent(max(found.probabilities))})"


def _refuse_outside(predictions: Sequence[dict[str, Any]]) -> None:
    outside = [p["image"] for p in predictions if p["inside"] is False]
    if outside:
        raise OutsideRanges(
            f"do not rely on the answer for {', '.join(outside)}: values in the model left the ranges that "
            "it was made for",
            "ask with images like those that the model was made for; if these are, ask its owner to export "
            "the model again with more images",
        )


def page(
    model: Positional[Path],
    server: str,
    port: int = 8600,
    protocol: str = "cheetah",
    certs: Path | None = None,
    helper: str | None = None,
    examples: Path | None = None,
    browser: bool = True,
) -> None:
    """Ask from a web page on this machine: drop a picture, see the answer and what the server saw.

    Args:
        model: The artifact's client folder.
        server: HOST:PORT of the server.
        port: The page's own port, on this machine alone; 0 takes any that is free.
        protocol: cheetah or aby3, as the server runs.
        certs: Folder made by `privit certs`, for mutual TLS.
        helper: HOST:PORT of the neutral third party, for aby3.
        examples: A folder of images that the page offers.
        browser: Open the page in the browser.
    """
    from privit.page.run import run_page

    def ready(address: str) -> None:
        note(f"the page is at {address}\nCtrl-C ends it")
        if browser and any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY")):
            webbrowser.open(address)

    run_page(model, server, protocol, certs, helper, port, examples, on_ready=ready)


def images_below(folder: Path | None) -> list[Path]:
    """Every image file in a folder and below it, in the order of their names."""
    from privit.data.sources import IMAGE_SUFFIXES

    if folder is None:
        return []
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder", "give image files without --images")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    if not found:
        raise RequestError(f"{folder} holds no image", "known: " + " ".join(sorted(IMAGE_SUFFIXES)))
    return found


def labels(paths: Sequence[Path]) -> list[str]:
    """The paths without the folders that all of them share: what tells one from another comes whole."""
    absolute = [Path(os.path.abspath(path)) for path in paths]
    shared = os.path.commonpath([path.parent for path in absolute])
    return [str(path.relative_to(shared)) for path in absolute]


def _prediction(prediction: Any) -> dict[str, Any]:
    data = asdict(prediction)
    data["probability"] = max(data["probabilities"])
    return data


def _show(
    result: dict[str, Any],
    predictions: Sequence[dict[str, Any]],
    names: Sequence[str],
    csv: bool,
    json: bool,
) -> None:
    if json:
        show_json(result | {"predictions": predictions})
        return
    if csv:
        single = ("image", "class_name", "probability")
        others = [key for key in predictions[0] if key not in (*single, "probabilities", "logits")]
        show_csv((*single, *others), ({k: p[k] for k in (*single, *others)} for p in predictions))
        return
    rows = [
        (
            name,
            p["class_name"],
            percent(p["probability"]),
            INSIDE[p["inside"]],
            megabytes(p["sent_bytes"]),
            p["rounds"],
            f"{p['seconds']:.1f}",
        )
        for name, p in zip(names, predictions, strict=False)
    ]
    columns = ("image", "class", "probability", "in range", "sent", "rounds", "seconds")
    shared = f", what was sent is of a query of {result['batch']}" if result["batch"] > 1 else ""
    show_rows(f"protocol {result['protocol']}{shared}", columns, rows)


VERBS: dict[str, Callable[..., None]] = {"query": query, "page": page}

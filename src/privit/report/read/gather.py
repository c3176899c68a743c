"""Whatever lies in a folder, as cells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from privit.errors import PrivitError, RequestError
from privit.report.read.cells import Cells, Measured
from privit.report.read.gather_runs import gather_runs
from privit.report.read.gather_sweep import INDEX, gather_sweep
from privit.runs import read_json

MEASURED_FILE = "predicted.json"
"""What `python -m benchmarks.predicted` writes."""


def gather(root: Path, protocol: str = "cheetah") -> Cells:
    """The cells of a sweep, or of any folder of runs; refuses a folder without either."""
    root = Path(root)
    if not root.is_dir():
        raise RequestError(f"{root} is not a folder", "give the folder of a sweep, or one with runs in it")
    found = gather_sweep(root, protocol) if (root / INDEX).is_file() else gather_runs(root, protocol)
    found = replace(found, measured=found.measured + tuple(_measured_file(root)))
    if not found.cells and not found.measured:
        unfinished = f" ({len(found.missing)} unfinished or unreadable)" if found.missing else ""
        raise RequestError(
            f"{root} holds no finished run{unfinished}",
            "give the folder of a sweep, or one that `privit teacher`, `search` or `finetune` wrote to",
        )
    return found


def _measured_file(root: Path) -> list[Measured]:
    path = root / MEASURED_FILE
    if not path.is_file():
        return []
    try:
        return [
            Measured(
                f"{entry['model']}, {entry['plan']}",
                entry["protocol"],
                quantity,
                float(entry["predicted"][quantity]),
                float(entry["measured"][quantity]),
            )
            for entry in read_json(path).values()
            for quantity in ("sent_bytes", "rounds")
        ]
    except (PrivitError, KeyError, TypeError, ValueError):
        return []

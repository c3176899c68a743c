"""Checkpoints of a training run: safetensors and JSON, replaced atomically, no pickle.

checkpoint/latest.json      epoch, folder, the run's identity, the stage's own numbers
checkpoint/epoch-7/         arrays.safetensors (weights, optimizer moments, the stage's arrays)
                            random-0.safetensors, one per process (Python, numpy and torch states)
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from privit.errors import RequestError
from privit.runs import Run, read_arrays, read_json, write_arrays, write_text, writing


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on after `epoch` finished epochs."""

    epoch: int
    numbers: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def part(self, prefix: str) -> dict[str, np.ndarray]:
        """The arrays below one prefix, without it."""
        start = prefix + "/"
        return {name[len(start) :]: a for name, a in self.arrays.items() if name.startswith(start)}


def save_checkpoint(run: Run, checkpoint: Checkpoint, accelerator: Any) -> None:
    """Writes a checkpoint and drops the one before it; called by every process."""
    folder = run.folder / "checkpoint" / f"epoch-{checkpoint.epoch}"
    if accelerator.is_main_process:
        with writing(run.folder):
            folder.mkdir(parents=True, exist_ok=True)
    accelerator.wait_for_everyone()
    write_arrays(folder / f"random-{accelerator.process_index}.safetensors", random_states())
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        write_arrays(folder / "arrays.safetensors", checkpoint.arrays)
        latest = {
            "epoch": checkpoint.epoch,
            "folder": folder.name,
            "run": run.identity,
            "processes": accelerator.num_processes,
            "numbers": checkpoint.numbers,
        }
        write_text(folder.parent / "latest.json", json.dumps(latest, indent=2) + "\n")
        for other in folder.parent.iterdir():
            if other.is_dir() and other != folder:
                shutil.rmtree(other, ignore_errors=True)
    accelerator.wait_for_everyone()


def load_checkpoint(run: Run, accelerator: Any) -> Checkpoint | None:
    """The latest checkpoint of this run, with the random states set back to it; None if there is none."""
    latest = run.folder / "checkpoint" / "latest.json"
    if not latest.is_file():
        return None
    data = read_json(latest)
    if data.get("run") != run.identity:
        raise RequestError(
            f"{latest} is the checkpoint of another run ({str(data.get('run'))[:9]}, not {run.identity[:9]})",
            "remove the checkpoint folder to start over, or put the right one back",
        )
    if data["processes"] != accelerator.num_processes:
        raise RequestError(
            f"this run was started with {data['processes']} processes, not {accelerator.num_processes}",
            f"start it with {data['processes']} again",
        )
    folder = latest.parent / data["folder"]
    set_random_states(read_arrays(folder / f"random-{accelerator.process_index}.safetensors"))
    return Checkpoint(int(data["epoch"]), data["numbers"], read_arrays(folder / "arrays.safetensors"))


def drop_checkpoint(folder: Path) -> None:
    """Removes the checkpoint of a finished run, whose weights and result are written."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def random_states() -> dict[str, np.ndarray]:
    """The states of the Python, numpy and torch generators as arrays."""
    version, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python.version": np.array([version]),
        "python.words": np.array(words, dtype=np.int64),
        "python.gauss": np.array([] if gauss is None else [gauss], dtype=np.float64),
        "numpy.keys": np.asarray(keys),
        "numpy.position": np.array([position, has_gauss]),
        "numpy.gauss": np.array([cached], dtype=np.float64),
        "torch": torch.get_rng_state().numpy(),
    }


def set_random_states(states: Mapping[str, np.ndarray]) -> None:
    """Sets the generators to what `random_states` gave."""
    gauss = states["python.gauss"]
    words = tuple(int(word) for word in states["python.words"])
    random.setstate((int(states["python.version"][0]), words, float(gauss[0]) if gauss.size else None))
    position, has_gauss = (int(n) for n in states["numpy.position"])
    np.random.set_state(
        ("MT19937", states["numpy.keys"], position, has_gauss, float(states["numpy.gauss"][0]))
    )
    torch.set_rng_state(torch.from_numpy(states["torch"].copy()))

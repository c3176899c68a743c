"""How fast each stage trains, against plain timm training and a plain KD step of the untouched model.

    python -m benchmarks.search_step [--json]

Time: the steps take turns in one process, so that whatever else the machine does meets all of them alike;
the figure is the median over turns of the ratio within a turn, by the wall clock and in processor time.
Images a second stand next to it: `timm` is cross-entropy on timm's own model, `teacher` the same on ours,
`plain` adds distillation to timm's, `search` and `finetune` are the two stages.
Memory: each step in a fresh child process, as the growth of its peak resident set over what it held before
the first step. Weights are random.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privit.plan import uniform_plan
from privit.spec import Spec, vit_spec
from privit.train.baselines import random_plan
from privit.train.student.vit import Student

MODEL = "deit_tiny_patch16_224"
STEPS = ("timm", "teacher", "plain", "search", "finetune")
DISTILLED = ("plain", "search", "finetune")
LIMITS = {"search": 1.5, "finetune": 1.2}
TEMPERATURE = 4.0
# Processor time tells the same on a busy machine, where the wall clock also counts waiting for others.
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def make_host(image_size: int, classes: int) -> tuple[nn.Module, Spec]:
    """The untouched model with random weights, and the spec of a student of the same size."""
    host = timm.create_model(MODEL, img_size=image_size, num_classes=classes)
    first = host.blocks[0]
    spec = vit_spec(
        image_size,
        host.patch_embed.patch_size[0],
        host.embed_dim,
        len(host.blocks),
        first.attn.num_heads,
        classes,
        mlp_width=first.mlp.fc1.out_features,
    )
    return host, spec


def make_step(name: str, image_size: int, batch: int, classes: int, stand_ins: str) -> Callable[[], None]:
    """A function that does one training step of the named kind, always on the same random images."""
    torch.manual_seed(0)
    teacher, spec = make_host(image_size, classes)
    teacher.eval().requires_grad_(False)
    stand_in = {
        "paper": {"gelu": "identity", "softmax": "squared_attn"},
        "fitted": {"gelu": "quadratic", "softmax": "quadratic_attn"},
    }[stand_ins]
    student: nn.Module
    if name in ("timm", "plain"):
        student = make_host(image_size, classes)[0]
    else:
        student = Student(spec, stand_in=stand_in)
        if name == "finetune":
            student.set_plan(random_plan(spec, 0.1, 0.1, stand_in=stand_in))
        elif name == "teacher":
            student.set_plan(uniform_plan(spec))
    student.train()
    switches = [p for n, p in student.named_parameters() if n.endswith(".switch")]
    weights = [p for n, p in student.named_parameters() if not n.endswith(".switch")]
    optimizer = torch.optim.AdamW(weights, lr=1e-4)
    if switches:
        optimizer.add_param_group({"params": switches, "weight_decay": 0.0})
    images = torch.randn(batch, spec.channels, image_size, image_size)
    labels = torch.randint(classes, (batch,))

    def step() -> None:
        logits = student(images)
        loss = F.cross_entropy(logits, labels)
        if name in DISTILLED:
            with torch.no_grad():
                expected = teacher(images)
            loss = loss + _distillation(logits, expected)
        if switches:
            loss = loss + 1e-4 * sum(s.abs().sum() for s in switches)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for switch in switches:
            switch.data.clamp_(0.0, 1.0)

    return step


def _distillation(logits: Tensor, expected: Tensor) -> Tensor:
    return F.kl_div(
        F.log_softmax(logits / TEMPERATURE, dim=-1),
        F.log_softmax(expected / TEMPERATURE, dim=-1),
        reduction="batchmean",
        log_target=True,
    )


def measure_seconds(turns: int, **sizes: object) -> dict[str, dict[str, list[float]]]:
    """By clock (wall, cpu) and kind of step, seconds turn by turn."""
    steps = {name: make_step(name, **sizes) for name in STEPS}  # type: ignore[arg-type]
    for step in steps.values():
        step()
    seconds: dict[str, dict[str, list[float]]] = {clock: {name: [] for name in STEPS} for clock in CLOCKS}
    for _ in range(turns):
        for name, step in steps.items():
            start = {clock: now() for clock, now in CLOCKS.items()}
            step()
            for clock, now in CLOCKS.items():
                seconds[clock][name].append(now() - start[clock])
    return seconds


def _ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    return {
        name: statistics.median(a / b for a, b in zip(seconds[name], seconds["plain"], strict=True))
        for name in LIMITS
    }


def measure_peak_bytes(name: str, **sizes: object) -> int:
    """Growth of the peak resident set over three steps; to be called in a fresh process."""
    step = make_step(name, **sizes)  # type: ignore[arg-type]
    # Linux starts the high-water mark again when 5 is written here (proc(5)); getrusage cannot be reset.
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident_bytes("VmRSS")
    for _ in range(3):
        step()
    return _resident_bytes("VmHWM") - before


def _resident_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def peak_bytes_in_child(name: str, arguments: list[str]) -> int:
    """`measure_peak_bytes` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.search_step", "--memory-of", name, *arguments]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run(image_size: int, batch: int, classes: int, stand_ins: str, turns: int) -> dict[str, object]:
    """Every figure, with the limits and whether they hold."""
    sizes = {"image_size": image_size, "batch": batch, "classes": classes, "stand_ins": stand_ins}
    seconds = measure_seconds(turns, **sizes)
    arguments = [f"--{key.replace('_', '-')}={value}" for key, value in sizes.items()]
    peaks = {name: peak_bytes_in_child(name, arguments) for name in DISTILLED}
    time_ratios = {clock: _ratios(values) for clock, values in seconds.items()}
    memory_ratios = {name: peaks[name] / peaks["plain"] for name in LIMITS}
    return {
        "model": MODEL,
        **sizes,
        "turns": turns,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "seconds": {name: statistics.median(values) for name, values in seconds["wall"].items()},
        "images_per_second": {name: batch / statistics.median(v) for name, v in seconds["wall"].items()},
        "peak_bytes": peaks,
        "time_ratio": time_ratios["wall"],
        "cpu_time_ratio": time_ratios["cpu"],
        "memory_ratio": memory_ratios,
        "limits": LIMITS,
        "holds": all(
            max(time_ratios[clock][n], memory_ratios[n]) <= LIMITS[n] for n in LIMITS for clock in CLOCKS
        ),
    }


def main(arguments: list[str] | None = None) -> dict[str, object]:
    """Measures and prints; with --json, exactly one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--image-size", type=int, default=112)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--stand-ins", choices=("paper", "fitted"), default="paper")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-of", choices=STEPS, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    sizes = {key: getattr(given, key) for key in ("image_size", "batch", "classes", "stand_ins")}
    if given.memory_of:
        print(measure_peak_bytes(given.memory_of, **sizes))
        return {}
    result = run(**sizes, turns=given.turns)
    if given.json:
        print(json.dumps(result))
    else:
        for name, rate in result["images_per_second"].items():  # type: ignore[attr-defined]
            print(f"{name} {rate:.1f} images/s")
        for key in ("time_ratio", "cpu_time_ratio", "memory_ratio"):
            print(key.replace("_", " "), result[key])
    return result


if __name__ == "__main__":
    main()

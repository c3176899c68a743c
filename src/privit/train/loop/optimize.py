"""The optimizer of a student, whose moments are known by parameter name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from privit.config import TrainConfig
from privit.operators import BY_NAME
from privit.train.student.vit import is_operator_parameter

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def is_switch(name: str) -> bool:
    """Whether a parameter of that name is a switch."""
    return name.endswith(".switch")


def is_coefficient(name: str) -> bool:
    """Whether a parameter of that name is a coefficient of a fitted polynomial."""
    return is_operator_parameter(name) and BY_NAME[name.split(".")[-2]].family != "static"


def make_optimizer(
    student: nn.Module, config: TrainConfig, switch_learning_rate: float | None
) -> torch.optim.AdamW:
    """AdamW over what is trained; switches have a learning rate of their own and no weight decay.

    So may fitted polynomials have (`operator_rate`): a step that is small for a weight is large for the
    coefficient of a squared score. Static attention is a matrix of weights like any other.
    """
    trained = [(name, p) for name, p in student.named_parameters() if p.requires_grad]
    rate = getattr(config, "operator_rate", 1.0)
    slow = {name: p for name, p in trained if rate != 1 and is_coefficient(name)}
    weights = [(name, p) for name, p in trained if not is_switch(name) and name not in slow]
    switches = [(name, p) for name, p in trained if is_switch(name)]
    groups: list[dict[str, Any]] = [
        {"params": weights, "base": config.learning_rate, "weight_decay": config.weight_decay}
    ]
    if slow:
        base, decay = rate * config.learning_rate, config.weight_decay
        groups.append({"params": list(slow.items()), "base": base, "weight_decay": decay})
    if switches:
        groups.append({"params": switches, "base": switch_learning_rate, "weight_decay": 0.0})
    # One kernel for all parameters: the small models here spend more on launching than on computing.
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)


def set_learning_rate(optimizer: Any, factor: float) -> None:
    """Sets each group's learning rate to its own base times `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = group["base"] * factor


def read_moments(optimizer: torch.optim.Optimizer) -> dict[str, np.ndarray]:
    """The optimizer's state as arrays called `parameter/moment`."""
    found = {}
    for group in optimizer.param_groups:
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            for key, value in optimizer.state.get(parameter, {}).items():
                found[f"{name}/{key}"] = value.detach().cpu().numpy().copy()
    return found


def write_moments(optimizer: torch.optim.Optimizer, arrays: Mapping[str, np.ndarray]) -> None:
    """Sets the state of every parameter that `arrays` knows; the others start afresh."""
    for group in optimizer.param_groups:
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            if f"{name}/step" in arrays:
                optimizer.state[parameter] = {
                    key: torch.from_numpy(np.array(arrays[f"{name}/{key}"])).to(parameter.device)
                    for key in MOMENTS
                }

"""What the batteries of tests on torch's own machinery share."""

import warnings
from copy import deepcopy
from typing import Any

import torch
from torch.optim import Optimizer
from torch.testing._internal.common_optimizers import (
    OptimizerInfo,
    _get_optim_inputs_including_global_cliquey_kwargs,
)
from torch.testing._internal.common_utils import TestCase

from tests.support.infos import Group, parameters, set_gradients

STEPS = 5


def every_input(optim_info: OptimizerInfo, device: str, dtype: torch.dtype) -> list[Any]:
    """All options times all implementations but the differentiable one, which leaves cannot take."""
    return _get_optim_inputs_including_global_cliquey_kwargs(
        device, dtype, optim_info, skip=("differentiable",)
    )


def implementations(optim_info: OptimizerInfo, device: str) -> list[str]:
    """Ways to take a step besides the loop that this device has."""
    fused = torch.device(device).type in optim_info.supports_fused_on
    return ["foreach", "fused"] if fused else ["foreach"]


def build(optim_info: OptimizerInfo, groups: list[Group], kwargs: dict[str, Any]) -> Optimizer:
    with warnings.catch_warnings():
        # torch's capturable=True inputs on the CPU, and its notes on Tensor rates, are not ours to judge.
        warnings.simplefilter("ignore", UserWarning)
        return optim_info.optim_cls(groups, **deepcopy(kwargs))


def train(optimizer: Optimizer, groups: list[Group], first: int = 0, last: int = STEPS) -> None:
    for seed in range(first, last):
        set_gradients(groups, seed)
        optimizer.step()


def state_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [optimizer.state[p] for p in parameters(optimizer.param_groups)]


class Battery(TestCase):
    """A test case that can compare optimizers."""

    def assert_same(
        self, one: Optimizer, other: Optimizer, *, exact: bool = False, **tolerance: float
    ) -> None:
        """Equal parameters and equal state; to rounding unless ``exact``."""
        if exact:
            tolerance = {"rtol": 0, "atol": 0}
        for a, b in zip(parameters(one.param_groups), parameters(other.param_groups), strict=True):
            self.assertEqual(a, b, **tolerance)
        for a, b in zip(state_of(one), state_of(other), strict=True):
            # torch's fused steps count on the device, its loops on the host
            self.assertEqual(a, b, exact_device=False, **tolerance)

"""Fused steps beside the pure one, on any device: shapes, layouts, options."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from symoptim import ScaledSGD, UnitNormSGD
from symoptim.geometry.tensors import update_dtype
from symoptim.routing import Geometry, axes_of
from symoptim.updates.step import StepOptions, step

OPTIMIZERS: dict[str, type[ScaledSGD] | type[UnitNormSGD]] = {"sm": ScaledSGD, "un": UnitNormSGD}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "nesterov, ascending": {"momentum": 0.9, "nesterov": True, "maximize": True},
}


class Case(NamedTuple):
    """A tensor with a geometry."""

    shape: tuple[int, ...]
    geometry: Geometry
    axis: int = 0
    channels_last: bool = False


CASES: dict[str, Case] = {
    "one entry": Case((1, 1), "rows"),
    "rows of one": Case((7, 1), "rows"),
    "rows of 7": Case((3, 7), "rows"),
    "many short rows": Case((300, 33), "rows"),
    "rows of 1500": Case((3, 1500), "rows"),
    "rows of 5000": Case((3, 5000), "rows"),
    "rows of 6000": Case((2, 6000), "rows"),
    "rows of 9000": Case((2, 9000), "rows"),
    "rows of 20000": Case((2, 20_000), "rows"),
    "rows of 40000": Case((2, 40_000), "rows"),
    "rows of 1000003": Case((2, 1_000_003), "rows"),
    "convolution": Case((4, 3, 3, 3), "rows"),
    "convolution, channels last": Case((4, 3, 3, 3), "rows", channels_last=True),
    "transposed convolution": Case((4, 3, 3, 3), "rows", axis=1),
    "transposed, channels last": Case((4, 3, 3, 3), "rows", axis=1, channels_last=True),
    "columns": Case((300, 130), "columns"),
    "columns of one": Case((1, 9), "columns"),
    "columns of a convolution": Case((9, 5, 2, 2), "columns"),
    "vector": Case((1001,), "plain"),
    "number": Case((), "plain"),
    "nothing": Case((0, 5), "plain"),
}


def made(case: Case, device: str, dtype: torch.dtype) -> nn.Parameter:
    """A parameter between NaNs: a step that reads beside it is seen, and so is one that writes there."""
    size = torch.Size(case.shape).numel()
    room = torch.full((size + 64,), torch.nan, device=device, dtype=dtype)
    # Filters of about unit norm: the scaled update grows with the square of it.
    drawn = torch.randn(size, dtype=torch.float64) / max(1, *case.shape, 1) ** 0.5
    flat = room[32 : 32 + size].copy_(drawn)
    if case.channels_last:
        count, channels, height, width = case.shape
        return nn.Parameter(flat.view(count, height, width, channels).permute(0, 3, 1, 2))
    return nn.Parameter(flat.view(case.shape))


def neighbors(parameter: nn.Parameter) -> Tensor:
    """The memory around it."""
    room = parameter.detach().as_strided((parameter.numel() + 64,), (1,), parameter.storage_offset() - 32)
    return torch.cat([room[:32], room[-32:]])


def set_gradient(parameter: nn.Parameter, scale: float) -> None:
    """A gradient that lies in memory as the parameter does."""
    drawn = torch.randn(parameter.shape, dtype=torch.float64) * scale
    parameter.grad = torch.empty_like(parameter).copy_(drawn)


def expected_steps(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, steps: int, scale: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """Weights after each step: those of the optimizer, and those of the pure step in float64."""
    (group,) = optimizer.param_groups
    over = axes_of(group["geometry"], group["axis"], parameter.ndim) if parameter.ndim > 1 else ()
    update = optimizer.updates[group["geometry"]]  # pyright: ignore[reportAttributeAccessIssue]
    kept = optimizer.state[parameter].get("master", parameter)
    weights, buffer = kept.detach().double().cpu(), None
    for _ in range(steps):
        set_gradient(parameter, scale)
        options = StepOptions(
            lr=float(group["lr"]),
            momentum=group["momentum"],
            nesterov=group["nesterov"],
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
        )
        assert parameter.grad is not None
        gradient = parameter.grad.double().cpu()
        weights, buffer = step(update, weights, gradient, options, buffer=buffer, over=over)
        optimizer.step()
        found = optimizer.state[parameter].get("master", parameter)
        yield found.detach().double().cpu(), weights


def tolerance(dtype: torch.dtype) -> float:
    """Relative, for a few steps."""
    return 1e-5 if update_dtype(dtype) == torch.float32 else 1e-13

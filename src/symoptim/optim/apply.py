"""Apply an update to many parameters: one by one, or all of one shape at once.

Both call the same pure step. A batch axis is all it takes to step a stack of equal shapes together, so
the ``foreach`` way is no second implementation: fewer, larger operations for one more copy of the data.
"""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symoptim.errors import OptionError
from symoptim.geometry.distributed import is_distributed, replicated_like
from symoptim.geometry.filters import Axes, norm, update_dtype
from symoptim.optim.layout import write
from symoptim.optim.precision import State, destinations, working_weights
from symoptim.routing import axes_of
from symoptim.updates.catalog import Update
from symoptim.updates.step import Rate, StepOptions, step

Factors = Mapping[Tensor, tuple[Tensor, ...]]
"""Numbers that broadcast against a parameter and are to be multiplied, by parameter."""


class Job(NamedTuple):
    """A parameter with a gradient, its state, the axes its filters extend over, and its metric.

    The metric is a product of factors that broadcast; the gradient is multiplied by all of them.
    """

    parameter: Tensor
    gradient: Tensor
    state: State
    over: Axes
    metric: tuple[Tensor, ...] = ()

    def direction(self) -> Tensor:
        """The gradient in the metric, in the precision of updates."""
        direction = self.gradient.to(update_dtype(self.parameter.dtype))
        for number, factor in enumerate(self.metric):
            scale = replicated_like(factor, direction)
            direction = direction.mul_(scale) if number else direction * scale  # the first makes a copy
        return direction


def filter_norms(groups: Iterable[dict[str, Any]]) -> Factors:
    """Norms of the filters of all parameters that have a gradient; plain ones are left out."""
    return {
        parameter: (
            norm(
                parameter.detach().to(update_dtype(parameter.dtype)),
                axes_of(group["geometry"], group["axis"], parameter.ndim),
            ),
        )
        for group in groups
        if group["geometry"] != "plain"
        for parameter in group["params"]
        if parameter.grad is not None
    }


def apply(jobs: list[Job], update: Update, options: StepOptions, group: Mapping[str, Any]) -> None:
    """Step the parameters of a group that are on one device, in the way the group asks for."""
    foreach = group["foreach"]
    if foreach is None:  # stack on accelerators, where launches cost more than copies
        alone = group["differentiable"] or any(is_distributed(job.parameter) for job in jobs)
        foreach = not alone and jobs[0].parameter.device.type != "cpu"
    if foreach:
        apply_stacked(jobs, update, options)
    else:
        apply_each(jobs, update, options, differentiable=group["differentiable"])


def apply_each(
    jobs: Iterable[Job], update: Update, options: StepOptions, *, differentiable: bool = False
) -> None:
    """Step every parameter on its own.

    Args:
        jobs: what to step.
        update: how.
        options: rate, momentum, decay.
        differentiable: step from copies, because autograd needs the old values after they are overwritten.
    """
    for job in jobs:
        weights = working_weights(job.parameter, job.state)
        buffer = _buffer(job.state, weights) if options.momentum else None
        if differentiable:
            weights = weights.clone()
            buffer = None if buffer is None else buffer.clone()
        stepped = step(update, weights, job.direction(), options, buffer=buffer, over=job.over)
        if stepped.buffer is not None:
            write(job.state["momentum_buffer"], stepped.buffer)
        for destination in destinations(job.parameter, job.state):
            write(destination, stepped.weights)


def apply_stacked(jobs: Iterable[Job], update: Update, options: StepOptions) -> None:
    """Step all parameters of one shape together; distributed ones, which do not stack, one by one.

    Args:
        jobs: what to step.
        update: how.
        options: rate, momentum, decay.
    """
    stacks: dict[object, list[Job]] = {}
    for job in jobs:
        alone = id(job.parameter) if is_distributed(job.parameter) else None
        kind = (job.parameter.shape, job.parameter.dtype, job.parameter.device, job.over, alone)
        stacks.setdefault(kind, []).append(job)
    for stack in stacks.values():
        if len(stack) == 1:
            apply_each(stack, update, options)
        else:
            _apply_stack(stack, update, options)


def _apply_stack(jobs: list[Job], update: Update, options: StepOptions) -> None:
    weights = [working_weights(job.parameter, job.state) for job in jobs]
    buffers = (
        [_buffer(job.state, w) for job, w in zip(jobs, weights, strict=True)] if options.momentum else []
    )
    stepped = step(
        update,
        torch.stack(weights),
        torch.stack([job.direction() for job in jobs]),
        options,
        buffer=torch.stack(buffers) if buffers else None,
        over=jobs[0].over,
    )
    if stepped.buffer is not None:
        _copy_all(buffers, stepped.buffer.unbind())
    for targets in zip(*(destinations(job.parameter, job.state) for job in jobs), strict=True):
        _copy_all(list(targets), stepped.weights.unbind())


def _copy_all(targets: list[Tensor], values: tuple[Tensor, ...]) -> None:
    # What torch's own foreach optimizers use; there is no public name for it.
    torch._foreach_copy_(targets, values)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


def _buffer(state: State, weights: Tensor) -> Tensor:
    """Momentum buffer of a parameter, zero before the first step; kept in place for captured graphs."""
    if "momentum_buffer" not in state:
        state["momentum_buffer"] = torch.zeros_like(weights, memory_format=torch.preserve_format)
    return state["momentum_buffer"]


def state_of(parameter: Tensor, states: MutableMapping[Tensor, State], *, momentum: bool) -> State:
    """State of a parameter; where nothing has to be kept none is made, as in ``torch.optim.SGD``.

    Args:
        parameter: whose state it is.
        states: of an optimizer, which makes missing ones when they are looked up.
        momentum: whether the parameter is stepped with momentum.

    Returns:
        The state, or an empty one that is not kept.

    Raises:
        OptionError: somebody has put a state of another shape there.
    """
    kept = momentum or update_dtype(parameter.dtype) != parameter.dtype
    state = states[parameter] if kept else states.get(parameter, {})
    for name in ("momentum_buffer", "master"):
        value = state.get(name)
        if isinstance(value, Tensor) and value.shape != parameter.shape:
            raise OptionError(
                f"the state '{name}' of a parameter of shape {tuple(parameter.shape)} has shape "
                f"{tuple(value.shape)}: load the state that was saved for it, or delete this one"
            )
    return state


def make_state(parameter: Tensor, state: State, *, momentum: bool) -> None:
    """Make the state of a parameter before its first step; a graph capturing that would repeat it."""
    weights = working_weights(parameter.detach(), state)
    if momentum:
        _buffer(state, weights)


def options_for(group: Mapping[str, Any], device: torch.device) -> StepOptions:
    """Options of the pure step for parameters of a group on a device."""
    return StepOptions(
        lr=rate_for(group["lr"], device),
        momentum=group["momentum"],
        nesterov=group["nesterov"],
        weight_decay=group["weight_decay"],
        maximize=group["maximize"],
    )


def rate_for(lr: Rate, device: torch.device) -> Rate:
    """Rate as the pure step wants it: no axes, and on the device of the weights unless on the host."""
    if not isinstance(lr, Tensor):
        return lr
    scalar = lr.reshape(())
    # A host scalar enters kernels as an argument; moving it would wait for the device.
    return scalar if scalar.device.type == "cpu" else scalar.to(device)


def device_rate(group: Mapping[str, Any]) -> Rate:
    """Rate as a tensor beside the parameters, which captured graphs read and schedulers change in place."""
    if not group["params"]:
        return group["lr"]
    first: Tensor = group["params"][0]
    if isinstance(group["lr"], Tensor):
        return group["lr"].to(first.device)
    return torch.tensor(group["lr"], dtype=update_dtype(first.dtype), device=first.device)

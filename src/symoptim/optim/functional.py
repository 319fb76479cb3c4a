"""Apply an update to many parameters: one by one, or all of one shape at once.

Both call the same pure step. A batch axis is all it takes to step a stack of equal shapes together, so
the ``foreach`` way is no second implementation: fewer, larger operations for one more copy of the data.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from symoptim.geometry.filters import Axes, norm
from symoptim.geometry.tensors import is_distributed, replicated_like, update_dtype
from symoptim.optim.master_weights import State, destinations, momentum_buffer, working_weights
from symoptim.optim.validation import Group
from symoptim.routing import axes_of
from symoptim.updates.catalog import Update
from symoptim.updates.step import Rate, StepOptions, step

Step = TypeVar("Step", bound=Callable[..., object])


def not_compiled(step: Step) -> Step:
    """The same step, which ``torch.compile`` leaves as it is: compiled it is no faster than kernels."""
    return cast("Step", torch.compiler.disable(step))  # pyright: ignore[reportUnknownMemberType]


def write(target: Tensor, value: Tensor) -> None:
    """Copy ``value`` to ``target``, which keeps its layout: DTensor replicates results of size one."""
    if is_distributed(target) and is_distributed(value):
        value = value.redistribute(placements=target.placements)
    target.copy_(value)


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
        return times(self.gradient.to(update_dtype(self.parameter.dtype)), self.metric)


def times(tensor: Tensor, factors: Iterable[Tensor]) -> Tensor:
    """A tensor times factors that broadcast against it."""
    for number, factor in enumerate(factors):
        scale = replicated_like(factor, tensor)
        tensor = tensor.mul_(scale) if number else tensor * scale  # the first makes a copy
    return tensor


def filter_norms(groups: Iterable[Group]) -> Factors:
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


def step_batch(jobs: list[Job], update: Update, options: StepOptions, group: Group) -> None:
    """Step the parameters of a group that are on one device, in the way the group asks for."""
    foreach = group["foreach"]
    if foreach is None:  # stack on accelerators, where launches cost more than copies
        alone = group["differentiable"] or any(is_distributed(job.parameter) for job in jobs)
        foreach = not alone and jobs[0].parameter.device.type != "cpu"
    if foreach:
        step_stacked(jobs, update, options)
    else:
        step_each(jobs, update, options, differentiable=group["differentiable"])


def step_each(
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
        buffer = momentum_buffer(job.state, weights) if options.momentum else None
        if differentiable:
            weights = weights.clone()
            buffer = None if buffer is None else buffer.clone()
        stepped = step(update, weights, job.direction(), options, buffer=buffer, over=job.over)
        if stepped.buffer is not None:
            write(job.state["momentum_buffer"], stepped.buffer)
        for destination in destinations(job.parameter, job.state):
            write(destination, stepped.weights)


def step_stacked(jobs: Iterable[Job], update: Update, options: StepOptions) -> None:
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
            step_each(stack, update, options)
        else:
            _step_stack(stack, update, options)


def _step_stack(jobs: list[Job], update: Update, options: StepOptions) -> None:
    weights = [working_weights(job.parameter, job.state) for job in jobs]
    buffers: list[Tensor] = []
    if options.momentum:
        buffers = [momentum_buffer(job.state, w) for job, w in zip(jobs, weights, strict=True)]
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


def options_for(group: Group, device: torch.device) -> StepOptions:
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


def device_rate(group: Group) -> Rate:
    """Rate as a tensor beside the parameters, which captured graphs read and schedulers change in place."""
    if not group["params"]:
        return group["lr"]
    first: Tensor = group["params"][0]
    if isinstance(group["lr"], Tensor):
        return group["lr"].to(first.device)
    return torch.tensor(group["lr"], dtype=update_dtype(first.dtype), device=first.device)

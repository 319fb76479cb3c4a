"""Everything an optimizer refuses, with the value, the rule and the way out.

Options and parameters are looked at when they are added, gradients (by kind, never by value) before a
step changes anything: a step that is refused leaves weights and state as they were.
"""

import math
import reprlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from symoptim.errors import (
    GradientError,
    LayoutError,
    OptionError,
    ZeroFilterWarning,
    callers,
    first_few,
    warn_user,
    with_article,
)
from symoptim.geometry.filters import lacks_direction
from symoptim.geometry.tensors import gathered, is_distributed
from symoptim.routing import axes_of, require_geometry

Group = dict[str, Any]


def labeled(group: Group) -> Iterator[tuple[str, Tensor]]:
    """Parameters of a group with the words that name them in messages."""
    names = group.get("param_names")
    for index, parameter in enumerate(group["params"]):
        yield f"parameter '{names[index]}'" if names else f"parameter {index} of its group", parameter


def require_params(group: Group) -> None:
    """Refuse a group that does not say which parameters are in it."""
    if "params" not in group:
        there = f"has {first_few(map(repr, group))}" if group else "is empty"
        raise OptionError(f"a group has its parameters as 'params', and this one {there}: add 'params'")


def completed(group: Group) -> Group:
    """A copy of a group as torch makes it: a list of tensors, and their names apart, if all have one.

    >>> w = nn.Parameter(torch.zeros(2, 2))
    >>> [*completed({"params": w})], completed({"params": [("head.weight", w)]})["param_names"]
    (['params'], ['head.weight'])
    """
    require_params(group)
    given = group["params"]
    if isinstance(given, set):
        return group  # which torch refuses
    members: list[Any] = [given] if isinstance(given, Tensor) else list(given)
    if not members or not all(isinstance(one, tuple) for one in members):
        return {**group, "params": members}
    return {**group, "params": [one[1] for one in members], "param_names": [one[0] for one in members]}


def require_named_alike(groups: list[Group], new: Group) -> None:
    """Refuse a completed group without names beside groups that have some, and the reverse, as torch does."""
    if not groups or ("param_names" in groups[0]) == ("param_names" in new):
        return
    how, way_out = "with", "give its parameters alone, without names"
    if "param_names" not in new:
        how, way_out = (
            "without",
            (
                "the others have some (symoptim.param_groups gives them). Give pairs of name and parameter: "
                "{'params': [('head.weight', head.weight)]}, or {'params': [*head.named_parameters()]}"
            ),
        )
    raise OptionError(
        "all optimizer param groups should be with/without names. cannot add param group "
        f"{how} names to the optimizer: {way_out}"
    )


def require_no_model(params: object, optimizer: str) -> None:
    """Refuse a model where its parameters are asked for; a list of parameters is a module, and welcome."""
    if isinstance(params, nn.Module) and not isinstance(params, nn.ParameterList):
        raise OptionError(
            f"{optimizer} takes parameters or groups of them, got the model {type(params).__name__}: give "
            "symoptim.param_groups(model), which sorts its parameters"
        )


def shown(value: object) -> str:
    """A value that is none of those wanted, in a few words.

    >>> shown(nn.Linear(2, 2)), shown("fast")
    ('a Linear', "'fast'")
    """
    kind = with_article(type(value).__name__)
    return kind if isinstance(value, nn.Module | Tensor) else reprlib.repr(value)


def check_options(group: Group) -> None:
    """Refuse a group whose options break their rules."""
    check_rate(group["lr"])
    for name in ("momentum", "weight_decay"):
        if not isinstance(group[name], float | int) or not 0 <= group[name] < math.inf:
            raise OptionError(f"{name} must be a finite number >= 0, got {group[name]!r}")
    for name in ("fused", "foreach"):
        if group[name] is not None and not isinstance(group[name], bool):
            raise OptionError(f"{name} must be True, False or None, got {group[name]!r}")
    if group["nesterov"] and not group["momentum"]:
        raise OptionError("nesterov=True needs momentum > 0, got momentum=0")
    for name in ("foreach", "differentiable"):
        if group["fused"] and group[name]:
            raise OptionError(f"fused=True and {name}=True cannot be combined: leave one of them out")
    if group["foreach"] and group["differentiable"]:
        raise OptionError(
            "foreach=True and differentiable=True cannot be combined: autograd cannot follow the copies a "
            "stacked step makes; leave foreach at None"
        )


def check_rate(lr: object) -> None:
    """Refuse a rate that is not one finite number >= 0."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise OptionError(f"Tensor lr must be 1-element, got shape {tuple(lr.shape)}")
    real = not lr.is_complex() if isinstance(lr, Tensor) else isinstance(lr, float | int)
    if not real or isinstance(lr, bool):
        raise OptionError(f"lr must be a number or a 1-element Tensor, got {shown(lr)}")
    value = float(lr.detach() if isinstance(lr, Tensor) else cast(float, lr))
    if not 0 <= value < math.inf:
        raise OptionError(f"lr must be a finite number >= 0, got {value}")


def check_parameters(group: Group) -> None:
    """Refuse parameters that do not have the geometry their group claims."""
    require_geometry(group["geometry"])
    if type(group["axis"]) is not int or group["axis"] not in (0, 1):
        raise OptionError(f"axis must be 0 or 1, the axis that counts output filters; got {group['axis']!r}")
    for name, parameter in labeled(group):
        require_layout(parameter, name)
        if not parameter.is_floating_point():
            raise OptionError(f"{name} has dtype {parameter.dtype}; only real floating point can be updated")
        if group["geometry"] != "plain" and parameter.ndim < 2:
            raise OptionError(
                f"{name} has shape {tuple(parameter.shape)}, but geometry '{group['geometry']}' needs at "
                "least 2 axes: put biases and norm parameters into a group with geometry='plain', or let "
                "symoptim.param_groups(model) sort them"
            )


def check_gradients(groups: list[Group]) -> None:
    """Refuse sparse, complex, misshapen and oddly laid out gradients before anything is changed."""
    for group in groups:
        for name, parameter in labeled(group):
            gradient = parameter.grad
            if gradient is None:
                continue
            if group.get("differentiable") and parameter.is_leaf and parameter.requires_grad:
                raise GradientError(
                    f"{name} is a leaf that requires grad, which a differentiable step cannot change in "
                    "place: optimize a copy of it, parameter.clone()"
                )
            if gradient.layout is not torch.strided:
                raise GradientError(
                    f"the gradient of {name} is sparse ({gradient.layout}); these updates need dense "
                    "ones: use sparse=False, or give that parameter to torch.optim.SparseAdam"
                )
            if gradient.is_complex():
                raise GradientError(f"the gradient of {name} is complex; only real ones can be used")
            if gradient.shape != parameter.shape:
                raise GradientError(
                    f"the gradient of {name} has shape {tuple(gradient.shape)}, the parameter itself "
                    f"{tuple(parameter.shape)}: set it to None and call backward() again"
                )
            require_same_layout(parameter, gradient, name)


def require_layout(parameter: Tensor, name: str) -> None:
    """Refuse a parameter that is still to be summed over processes, or that cannot be written."""
    if parameter.layout is torch.strided and not is_distributed(parameter):
        both = zip(parameter.shape, parameter.stride(), strict=True)
        if parameter.numel() and any(size > 1 and stride == 0 for size, stride in both):
            raise LayoutError(
                f"{name} has several entries in the same memory (strides {parameter.stride()}), which cannot "
                "be given different values: clone() it"
            )
    if is_distributed(parameter) and any(p.is_partial() for p in parameter.placements):
        raise LayoutError(
            f"{name} is laid out as {parameter.placements}; partial values are not "
            "weights yet: redistribute it to Shard or Replicate first"
        )


def require_same_layout(parameter: Tensor, gradient: Tensor, name: str) -> None:
    """Refuse a gradient that is not laid out like its parameter."""
    ours = parameter.placements if is_distributed(parameter) else None
    theirs = gradient.placements if is_distributed(gradient) else None
    if ours != theirs:
        raise LayoutError(
            f"the gradient of {name} is laid out as {theirs}, the parameter as {ours}; they must match: "
            "redistribute the gradient before the step"
        )


class Directionless(NamedTuple):
    """A parameter that has zero filters or worse."""

    name: str
    which: str
    """The first few of them, in words."""
    has_no_other: bool


def filters_without_direction(group: Group) -> Iterator[Directionless]:
    """Parameters of a group that have zero filters or worse."""
    for name, parameter in labeled(group):
        if parameter.is_meta or not parameter.numel():
            continue  # nothing to look at yet, or nothing at all
        over = axes_of(group["geometry"], group["axis"], parameter.ndim)
        mask = gathered(lacks_direction(parameter.detach(), over)).flatten()
        lost = [int(index) for index in mask.nonzero()]
        if lost:
            which = f"{first_few(lost)}; zero, not finite, or too small or large to square"
            yield Directionless(name, which, len(lost) == len(mask))


def is_zero(parameter: Tensor) -> bool:
    """Whether a parameter has entries and all of them are zero."""
    if parameter.is_meta or not parameter.numel():
        return False
    return not bool(gathered(parameter.detach().abs().sum()))


def is_trained_matrix(parameter: Tensor) -> bool:
    """Whether a parameter is trained, has its memory, and has filters."""
    return parameter.requires_grad and not parameter.is_meta and parameter.ndim > 1


def warn_of_zero_filters(group: Group) -> None:
    """Say once for a group which filters will stay at zero because they have no scale."""
    found = [] if group["geometry"] == "plain" else list(filters_without_direction(group))
    if not found:
        return
    first, *others = found
    has = f"{first.name} has" if not others else f"{first.name} and {len(others)} more of its group have"
    whole = [one.name for one in found if one.has_no_other]
    nothing = f" ({first_few(whole)} will not learn at all: all filters are such)" if whole else ""
    warn_user(
        f"{has} {group['geometry']} without a direction ({first.which}); they have no scale, so that zero "
        f"ones stay at zero and never learn{nothing}: give them a start, or put "
        f"{'the parameters' if others else 'the parameter'} into a group with geometry='plain', as "
        "symoptim.param_groups(model) does if it is zero as a whole",
        ZeroFilterWarning,
    )


def check_last_group(groups: list[Group], check: Callable[[Group], None]) -> None:
    """Check the group that was added last; one that is refused is taken out again."""
    try:
        check(groups[-1])
    except Exception:
        groups.pop()
        raise


def zero_redundancy_optimizer() -> Optimizer | None:
    """Torch's ZeroRedundancyOptimizer, if it is what makes this optimizer: of a part of the parameters.

    It says so nowhere, so it is looked for among the callers, up to the first.
    """
    makers = (frame.f_locals.get("self") for frame in callers())
    found = (
        one for one in makers if any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(one).__mro__)
    )
    return cast("Optimizer | None", next(found, None))


def loss_of(closure: Callable[[], float]) -> float:
    """Loss of the closure of a step, with gradients enabled."""
    with torch.enable_grad():
        return closure()

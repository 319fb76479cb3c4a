"""State of a parameter: its momentum buffer, and its master copy.

A bfloat16 or float16 parameter is updated in float32 and rounded only to be used. The copy is kept in the
optimizer's state as ``"master"``. Where a parameter no longer is the rounding of its copy, somebody changed
it from outside (loaded a checkpoint, reset a layer), and the parameter wins.
"""

from collections.abc import Iterator, MutableMapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from symoptim.errors import CheckpointError, OptionError
from symoptim.geometry.tensors import is_distributed, update_dtype
from symoptim.kernels.memory_layout import same_memory_order

State = dict[str, Any]


def working_weights(parameter: Tensor, state: State) -> Tensor:
    """Weights to step from: the parameter itself, or its master copy, made on first use."""
    dtype = update_dtype(parameter.dtype)
    if dtype == parameter.dtype:
        return parameter
    wide = parameter.to(dtype)
    if "master" not in state:
        state["master"] = wide.clone()
    master: Tensor = state["master"]
    return torch.where(parameter == master.to(parameter.dtype), master, wide)


def destinations(parameter: Tensor, state: State) -> Iterator[Tensor]:
    """Tensors that stepped weights are written to: the master copy if there is one, the parameter."""
    if parameter.dtype != update_dtype(parameter.dtype):
        yield state["master"]
    yield parameter


def momentum_buffer(state: State, weights: Tensor) -> Tensor:
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
        momentum_buffer(state, weights)


def match_layout(parameter: Tensor, state: State) -> None:
    """Give state that was loaded in another order of its axes in memory the parameter's."""
    for key in ("momentum_buffer", "master"):
        if key in state and not is_distributed(parameter) and not same_memory_order(parameter, state[key]):
            kept = torch.empty_like(parameter, dtype=state[key].dtype, requires_grad=False)
            state[key] = kept.copy_(state[key])


def require_same_shapes(optimizer: Optimizer, saved: State) -> None:
    """Refuse a saved state whose tensors are not like the parameters they are for."""
    for number, parameter in _saved_parameters(optimizer, saved):
        for key, value in saved["state"].get(number, {}).items():
            if key in ("momentum_buffer", "master") and not _is_dense(value):
                raise CheckpointError(
                    f"the saved {key} of parameter {number} is {_kind_of(value)}, not a dense tensor of real "
                    "floating point: the checkpoint is damaged, or of another optimizer"
                )
            if isinstance(value, Tensor) and value.shape != parameter.shape:
                raise CheckpointError(
                    f"the saved {key} of parameter {number} has shape {tuple(value.shape)}, the parameter "
                    f"{tuple(parameter.shape)}: the state is of another model"
                )


def _is_dense(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided and value.is_floating_point()


def _kind_of(value: object) -> str:
    return f"{value.layout} of {value.dtype}" if isinstance(value, Tensor) else repr(value)


def restore_precision(optimizer: Optimizer, saved: State) -> None:
    """Undo the cast of loaded state to the parameters' own precision that torch makes.

    ``saved`` is the state dict that was loaded. State is kept in the precision of updates; a master copy
    that belongs to a parameter of full precision is dropped.
    """
    for number, parameter in _saved_parameters(optimizer, saved):
        dtype = update_dtype(parameter.dtype)
        for key, value in saved["state"].get(number, {}).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                optimizer.state[parameter][key] = value.detach().to(parameter.device, dtype, copy=True)
        if dtype == parameter.dtype and parameter in optimizer.state:
            optimizer.state[parameter].pop("master", None)


def _saved_parameters(optimizer: Optimizer, saved: State) -> Iterator[tuple[int, Tensor]]:
    """Keys of the saved state and the parameters they are of; torch refuses states of other lengths."""
    keys = chain.from_iterable(group["params"] for group in saved["param_groups"])
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    return zip(keys, parameters, strict=False)

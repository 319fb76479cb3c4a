"""Small operations on tensors that torch leaves untyped or does not have."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn


def filled(axes: int, value: int) -> Tensor:
    """A tensor of that many axes, all of size 1."""
    return torch.full([1] * axes, value)


def aligned(tensor: Tensor, axes: int) -> Tensor:
    """A tensor with axes of size 1 in front, as broadcasting would give it."""
    return tensor.reshape([1] * (axes - tensor.dim()) + list(tensor.shape))


def squeezed(tensor: Tensor) -> Tensor:
    """The same values, of size 1 along every axis they do not vary along.

    >>> squeezed(torch.tensor([[1, 1], [2, 2]])).shape
    torch.Size([2, 1])
    """
    for axis in range(tensor.dim()):
        if tensor.shape[axis] > 1:
            first = tensor.narrow(axis, 0, 1)
            if tensor.stride(axis) == 0 or bool((tensor == first).all()):
                tensor = first
    return tensor


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Shape that tensors of these shapes broadcast to."""
    return tuple(cast("Any", torch).broadcast_shapes(*shapes))


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors broadcast to one shape, stacked along a new last axis."""
    return torch.stack(list(cast("Any", torch).broadcast_tensors(*tensors)), dim=-1)


def unique_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows of a table, and for every row which of them it is.

    >>> unique_rows(torch.tensor([[2, 1], [0, 5], [2, 1]]))
    (tensor([[0, 5],
            [2, 1]]), tensor([1, 0, 1]))
    """
    rows, which = cast("Any", torch).unique(table, dim=0, return_inverse=True)
    return rows, which


def unique_values(values: Tensor) -> tuple[Tensor, Tensor]:
    """The different values in order, and for every one which of them it is."""
    different, which = cast("Any", torch).unique(values, return_inverse=True)
    return different, which


def whole_numbers(tensor: Tensor) -> list[int]:
    """The values of an integer vector."""
    return cast("list[int]", cast("Any", tensor).tolist())


def different_values(tensor: Tensor) -> list[float]:
    """The different values of a tensor, in order."""
    return cast("list[float]", cast("Any", unique_values(tensor)[0]).tolist())


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by every name they have."""
    found: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    found.update(model.named_buffers(remove_duplicate=False))
    return found

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
    if not table.numel():
        return table[:1], torch.zeros(len(table), dtype=torch.int64)
    low = int(table.min())
    size = int(table.max()) - low + 1
    # A row as one number, digit by digit: sorting numbers is many times faster than sorting rows.
    key, bound = table[:, 0] - low, size
    for column in table.unbind(dim=1)[1:]:
        if bound * size >= LARGEST:
            different, key = unique_values(key)
            bound = len(different)
        key, bound = key * size + (column - low), bound * size
    different, which = unique_values(key)
    return table[first_places(which, len(different))], which


LARGEST = 2**62


def first_places(which: Tensor, count: int) -> Tensor:
    """Where each number first occurs."""
    places = torch.arange(len(which))
    return torch.full((count,), len(which)).scatter_reduce_(0, which, places, "amin")


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

"""How the filters of a tensor lie in memory, whatever the order of its axes there.

A tensor without gaps is, in memory, ``outer`` times ``filters`` times ``inner`` entries, and filter f has
those with the middle index f:

    weight                                          outer     filters  inner
    matrix or convolution, by its rows              1         o        i h w
    the same in channels_last                       1         o        h w i
    matrix, by its columns                          o         i        1
    transposed convolution, by its output axis      i         o        h w
"""

from typing import NamedTuple

from torch import Tensor

ALIGNED_ENTRIES = 8
"""Entries, which are 16 bytes or more: rows of multiples of that are moved 16 bytes at a time."""


class FilterLayout(NamedTuple):
    """Filter f has the entries ``(a filters + f) inner + b``, for a below ``outer`` and b below ``inner``."""

    outer: int
    filters: int
    inner: int

    @property
    def length(self) -> int:
        """Entries of a filter."""
        return self.outer * self.inner


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor fills its memory without gaps and without overlap, its axes in any order.

    >>> import torch
    >>> x = torch.zeros(2, 3, 4)
    >>> is_dense(x.permute(2, 0, 1)), is_dense(x[:, ::2]), is_dense(x[:1].expand(5, 3, 4))
    (True, False, False)
    """
    if not tensor.numel():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def same_memory_order(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape have their entries in the same order in memory.

    >>> import torch
    >>> x = torch.zeros(2, 1, 3)
    >>> same_memory_order(x, x.as_strided((2, 1, 3), (3, 7, 1)))
    True
    >>> same_memory_order(x, torch.zeros(3, 1, 2).permute(2, 1, 0))
    False
    """
    strides = zip(one.shape, one.stride(), other.stride(), strict=True)
    # An axis of size one may have any stride: that of a convolution of one pixel depends on who made it.
    return all(size == 1 or mine == yours for size, mine, yours in strides)


def filter_layout(tensor: Tensor, axis: int | None) -> FilterLayout:
    """How the filters counted by an axis lie; without one, all entries are one filter.

    Args:
        tensor: a dense one.
        axis: the axis that counts filters, if any.

    Returns:
        The layout.

    >>> import torch
    >>> weight = torch.zeros(5, 3, 2, 2)
    >>> filter_layout(weight, 0), filter_layout(weight, 1)
    (FilterLayout(outer=1, filters=5, inner=12), FilterLayout(outer=5, filters=3, inner=4))
    >>> filter_layout(weight.contiguous(memory_format=torch.channels_last), 1)
    FilterLayout(outer=20, filters=3, inner=1)
    """
    entries = tensor.numel()
    if axis is None or tensor.shape[axis] == 1 or not entries:
        return FilterLayout(1, 1, entries)
    filters, inner = tensor.shape[axis], tensor.stride(axis)
    return FilterLayout(entries // (filters * inner), filters, inner)

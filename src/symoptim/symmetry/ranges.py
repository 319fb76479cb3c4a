"""Indices out of range, before they are used on a device.

On a CPU they are an error that can be caught. On a CUDA device a kernel stops, and with it all later work of
the process on that device; so models are not called with inputs of other sizes before it was looked at.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from symoptim.symmetry.graph import name_of

ALONG_AN_AXIS = (
    "index_select",
    "gather",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "index_add",
    "index_copy",
    "index_fill",
    "index_reduce",
)
"""Operations with arguments (table, axis, indices)."""
OF_ROWS = {"embedding": 1, "embedding_bag": 1, "_embedding_bag": 1, "_embedding_bag_forward_only": 1}
"""Operations whose first argument is a table of rows, with the place of the indices."""
OF_CLASSES = {"nll_loss": 4, "nll_loss_forward": 4, "nll_loss2d": 4, "nll_loss2d_forward": 4}
"""Operations with arguments (scores, classes), with the place of a class that is ignored."""


class OutOfRangeError(IndexError):
    """An index is out of range, and was not used: the call must not be made again on the device."""


class RangesChecked(TorchDispatchMode):
    """While it is entered, indices out of range raise before a kernel gets them.

    Args:
        safe: devices on which nothing is looked at.
    """

    def __init__(self, safe: Collection[str] = ("cpu", "meta")) -> None:
        """Nothing is looked at before it is entered."""
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
        self.safe = safe

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at the arguments of one operation, then run it."""
        require_in_range(name_of(func), args, self.safe)
        return func(*args, **(kwargs or {}))


def require_in_range(name: str, arguments: Sequence[Any], safe: Collection[str] = ("cpu", "meta")) -> None:
    """Raise the error that a CPU would raise.

    Args:
        name: of the operation.
        arguments: of it.
        safe: devices on which nothing is looked at, for the operation raises it.

    Raises:
        OutOfRangeError: an index is out of range.
    """
    for indices, low, high, ignored in _ranges(name.removesuffix("_"), arguments):
        if indices.device.type in safe or not indices.numel():
            continue
        counted = indices[indices != ignored] if ignored is not None else indices
        if counted.numel() and bool(((counted < low) | (counted >= high)).any()):
            raise OutOfRangeError(f"{name}: an index is out of range, which is {low} to {high - 1}")


def _ranges(name: str, arguments: Sequence[Any]) -> Iterator[tuple[Tensor, int, int, int | None]]:
    """Indices, the smallest one there may be, the first that is too large, and one that is not used."""
    if not arguments or not isinstance(arguments[0], Tensor):
        return
    shape = arguments[0].shape
    if name in OF_ROWS and len(arguments) > 1:
        yield arguments[OF_ROWS[name]], 0, shape[0], None
    elif name in ALONG_AN_AXIS and len(arguments) > 2 and isinstance(arguments[2], Tensor) and shape:
        yield arguments[2], 0, shape[arguments[1]], None
    elif name == "take" and len(arguments) > 1:
        yield arguments[1], -arguments[0].numel(), arguments[0].numel(), None
    elif name in OF_CLASSES and len(arguments) > 1 and len(shape):
        ignored = arguments[OF_CLASSES[name]] if len(arguments) > OF_CLASSES[name] else -100
        yield arguments[1], 0, shape[1 if len(shape) > 1 else 0], ignored
    elif name in ("index", "index_put") and len(arguments) > 1:
        found = [(axis, one) for axis, one in enumerate(arguments[1]) if one is not None]
        if not any(one.dtype in (torch.bool, torch.uint8) for _, one in found):  # masks have shapes to fit
            yield from ((one, -shape[axis], shape[axis], None) for axis, one in found)

"""What is refused before an operation is run: indices out of range, and more memory than a pass may take.

On a CPU an index out of range is an error that can be caught. On a CUDA device a kernel stops, and with it
all later work of the process on that device; so models are not called with inputs of other sizes before it
was looked at. Results of all operations of a pass stay until it is over.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from symoptim.errors import TraceError
from symoptim.symmetry.graph import mapped, name_of

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


def require_in_range(name: str, arguments: Sequence[object], safe: Collection[str] = ("cpu", "meta")) -> None:
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


LARGEST_PASS = 2**30
"""Bytes of results of a pass on inputs that nobody has given; twice those of the example are always tried."""
LARGE = 2**12
"""Entries of an argument from which on it is worth to ask how large results will be."""


class TooLargeError(TraceError):
    """A pass takes more memory than it may."""


class ResultSizes:
    """How large results of operations are; asked for once for all arguments of the same shapes."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.known: dict[tuple[Any, str], int] = {}

    def require_room(
        self, function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], room: float
    ) -> None:
        """Refuse an operation whose results would be larger than the memory that is left.

        They are asked for on the meta device, which computes nothing. An operation that has no rule there
        passes.

        Args:
            function: the operation.
            arguments: its positional arguments.
            keywords: its other arguments.
            room: the bytes that are left.

        Raises:
            TooLargeError: results would be larger.

        >>> sizes, x = ResultSizes(), torch.zeros(5000, 1)
        >>> sizes.require_room(torch.ops.aten.mm.default, (x, x.t()), {}, 10**9)
        >>> sizes.require_room(torch.ops.aten.mm.default, (x, x.t()), {}, 10**7)
        Traceback (most recent call last):
        symoptim.symmetry.limits.TooLargeError: mm has a result of 100,000,000 bytes
        """
        if room == math.inf or any(one.alias_info is not None for one in function._schema.returns):
            return  # a view, or written into what is there
        tensors: list[Tensor] = []
        described = mapped(partial(_described, tensors), (tuple(arguments), dict(keywords)))
        if tensors and max(tensor.numel() for tensor in tensors) < LARGE:
            return
        key = function, str(described)
        if key not in self.known:
            self.known[key] = _bytes_of_results(function, arguments, keywords, made=not tensors)
        if self.known[key] > room:
            name = function.overloadpacket.__name__
            raise TooLargeError(f"{name} has a result of {self.known[key]:,} bytes")


def _described(tensors: list[Tensor], value: object) -> Any:
    """A tensor by what results depend on, which is noted; whatever else as it is."""
    if not isinstance(value, Tensor):
        return value
    tensors.append(value)
    return value.shape, value.stride() if value.layout == torch.strided else value.layout, value.dtype


def _bytes_of_results(
    function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], *, made: bool
) -> int:
    """Bytes of results on the meta device; 0 where they are not known. ``made`` of nothing, on a device."""
    try:
        there, named = mapped(_on_meta, (tuple(arguments), dict(keywords)))
        if made and any(one.name == "device" for one in function._schema.arguments):
            named["device"] = torch.device("meta")
        results: list[Any] = tree_leaves(function(*there, **named))
    except Exception:  # it has no rule there, or its results depend on values
        return 0
    return sum(one.nbytes for one in results if isinstance(one, Tensor))


def _on_meta(value: object) -> Any:
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return value


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory, of this machine or of what a pass may take, was not enough: the model is not to blame.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
    (True, False)
    """
    kinds = cast("tuple[type[Exception], ...]", (MemoryError, torch.OutOfMemoryError, TooLargeError))
    return isinstance(error, kinds) or "DefaultCPUAllocator" in str(error)

"""How much memory a pass takes: the results of all its operations stay until it is over."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from symoptim.errors import TraceError
from symoptim.symmetry.graph import mapped

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
        symoptim.symmetry.pass_memory.TooLargeError: mm has a result of 100,000,000 bytes
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


def _described(tensors: list[Tensor], value: Any) -> Any:
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


def _on_meta(value: Any) -> Any:
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

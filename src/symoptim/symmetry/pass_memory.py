"""How much memory a pass takes: the results of all its operations stay until it is over."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.errors import TraceError

LARGEST_PASS = 2**30
"""Bytes of results of a pass on inputs that nobody has given; twice those of the example are always tried."""
LARGE = 2**12
"""Entries of an argument from which on it is worth to ask how large results will be."""


class TooLargeError(TraceError):
    """A pass takes more memory than it may."""


def require_room(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], room: float) -> None:
    """Refuse an operation whose results would be larger than the memory that is left.

    They are asked for on the meta device, which computes nothing. An operation that has no rule there passes.

    Args:
        function: the operation.
        arguments: its positional arguments.
        keywords: its other arguments.
        room: the bytes that are left.

    Raises:
        TooLargeError: results would be larger.

    >>> x = torch.zeros(5000, 1)
    >>> require_room(torch.ops.aten.mm.default, (x, x.t()), {}, 10**9)
    >>> require_room(torch.ops.aten.mm.default, (x, x.t()), {}, 10**7)
    Traceback (most recent call last):
    symoptim.symmetry.pass_memory.TooLargeError: mm has a result of 100,000,000 bytes
    """
    if room == math.inf or any(one.alias_info is not None for one in function._schema.returns):
        return  # a view, or written into what is there
    leaves: list[Any] = tree_leaves((arguments, dict(keywords)))
    sizes = [leaf.numel() for leaf in leaves if isinstance(leaf, Tensor)]
    if sizes and max(sizes) < LARGE:
        return
    there, named = tree_map(_on_meta, (tuple(arguments), dict(keywords)))
    if not sizes and any(one.name == "device" for one in function._schema.arguments):
        named["device"] = torch.device("meta")
    try:
        results: list[Any] = tree_leaves(function(*there, **named))
    except Exception:  # it has no rule there, or its results depend on values
        return
    coming = sum(one.nbytes for one in results if isinstance(one, Tensor))
    if coming > room:
        raise TooLargeError(f"{function.overloadpacket.__name__} has a result of {coming:,} bytes")


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

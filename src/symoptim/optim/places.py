"""Where tensors lie and how, so that kernels can rely on it.

All tensors are asked in one call wherever torch has such a call. The names are not public; without them
tensors are asked one by one. See ``look.cpp`` for what is faster than both.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

import torch
from torch import Tensor

from symoptim.geometry.distributed import is_distributed

_torch: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_compared: Callable[[list[Any], list[int], list[int]], bool] | None = getattr(
    _torch, "_tensors_data_ptrs_at_indices_equal", None
)
"""Whether tensors are at given addresses; builds of torch without CUDA do not have it."""
_guards: Callable[..., Any] | None = getattr(
    getattr(getattr(_torch, "_dynamo", None), "guards", None), "TensorGuards", None
)
"""Remembers types, shapes and strides of tensors."""


def local(tensor: Tensor) -> Tensor:
    """The tensor itself, or this process's part of it."""
    return tensor.to_local() if is_distributed(tensor) else tensor


def address_of(tensor: Tensor) -> int:
    """Where the first entry of a tensor is; zero if it has none, or no memory."""
    return local(tensor).data_ptr()


def has_memory(tensor: Tensor) -> bool:
    """Whether a tensor has memory, unless it needs none: it may have been freed."""
    here = local(tensor)
    return not here.numel() or here.untyped_storage().nbytes() > 0


def why_not_in_memory(tensor: Tensor) -> str | None:
    """Why a tensor has no entries in memory that can be pointed at, or None if it has."""
    # Subclasses that hold other tensors, or none, have no memory of their own.
    dispatch = [cast("Any", kind).__torch_dispatch__ for kind in (type(tensor), Tensor)]
    if not is_distributed(tensor) and dispatch[0] is not dispatch[1]:
        return f"a {type(tensor).__name__} does not say where its entries are"
    if tensor.layout is torch.strided and not has_memory(tensor):
        return "the memory has been freed"
    return None


def storages_of(tensors: Iterable[Tensor]) -> set[int]:
    """Where the memory begins that tensors are part of; those that have none of their own are left out."""
    dense = [one for one in tensors if one.layout is torch.strided and not one.is_meta]
    return {local(one).untyped_storage().data_ptr() for one in dense if not why_not_in_memory(one)} - {0}


def form_of(tensor: object) -> object:
    """All of a tensor but where it is and what is in it.

    >>> weight = torch.zeros(4, 1)
    >>> form_of(weight) == form_of(weight.clone()), form_of(weight) == form_of(weight.T)
    (True, False)
    """
    if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
        return tensor.layout if isinstance(tensor, Tensor) else type(tensor)
    here = local(tensor)
    spread = (tensor.placements, tensor.device_mesh) if is_distributed(tensor) else None
    about = type(tensor), tensor.dtype, tensor.device, tensor.is_neg(), spread
    return *about, tensor.shape, here.shape, here.stride()


class Memory:
    """Memory of tensors that are written.

    >>> weights, row = torch.zeros(2, 4), torch.tensor(16)
    >>> second = [weights.data_ptr() + 16]
    >>> Memory([weights]).has(second, row).tolist(), Memory([weights[:1]]).has(second, row).tolist()
    ([True], [False])
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        """Note down where they begin and end; they have no gaps."""
        here = map(local, tensors)
        pieces = sorted((one.data_ptr(), one.data_ptr() + one.nbytes) for one in here if one.numel())
        with torch.device("cpu"):
            self._starts = torch.tensor([start for start, _ in pieces] + [_END])
            ends = torch.tensor([end for _, end in pieces] + [_END])
        self._ends = ends.cummax(0).values

    def has(self, addresses: Sequence[int], sizes: Tensor) -> Tensor:
        """Whether any of so many bytes from these addresses on is among it, ``(n,)``."""
        first = torch.tensor(addresses, dtype=torch.int64, device="cpu")
        # The first piece that ends behind an address: it begins before so many bytes are over, or none does.
        found = torch.searchsorted(self._ends, first, right=True).clamp_(max=len(self._ends) - 1)
        return self._starts[found] < first + sizes


_END = torch.iinfo(torch.int64).max  # no tensor is there


class Places:
    """Addresses of tensors.

    >>> weight, bias = torch.zeros(2, 2), torch.zeros(2)
    >>> places = Places([weight, bias])
    >>> places.hold([weight, bias]), places.hold([weight, bias.clone()])
    (True, False)
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Note down where they are."""
        are_spread = any(map(is_distributed, tensors))
        self._address_of: Callable[[Tensor], int] = address_of if are_spread else Tensor.data_ptr
        self._every = None if are_spread else list(range(len(tensors)))
        self.addresses = list(map(self._address_of, tensors))

    def hold(self, tensors: list[Any]) -> bool:
        """Whether tensors of the same form are at these addresses."""
        if _compared is not None and self._every is not None:
            return _compared(tensors, self.addresses, self._every)
        return list(map(self._address_of, tensors)) == self.addresses


class Forms:
    """Forms of tensors.

    >>> weight = torch.zeros(2, 3)
    >>> forms = Forms([weight])
    >>> forms.hold([weight.clone()]), forms.hold([weight.view(3, 2)]), forms.hold([None])
    (True, False, False)
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Note down how they are."""
        self._forms = list(map(form_of, tensors))
        self._agree: Callable[..., bool] | None = None
        # Of a tensor that is spread over processes, guards know the whole only.
        if _guards is not None and not any(map(is_distributed, tensors)):
            with suppress(TypeError, ValueError, RuntimeError):  # of another torch
                self._agree = _guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check

    def hold(self, tensors: Sequence[object]) -> bool:
        """Whether as many tensors have these forms; what is no tensor has not."""
        if self._agree is not None and self._agree(*tensors):
            return True
        # Guards are stricter: they know whether autocast is on, and whether a gradient is required.
        return list(map(form_of, tensors)) == self._forms

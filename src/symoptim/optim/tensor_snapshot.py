"""Has a tensor moved or changed form? Kernels go by addresses, which are written down once.

Every step asks again, so that nothing is stepped where it was: parameters, their state and their gradients.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import attrgetter, eq

import torch
from torch import Tensor

from symoptim.geometry.tensors import is_distributed

_gradient_of: Callable[[Tensor], Tensor] = attrgetter("grad")


def local(tensor: Tensor) -> Tensor:
    """The tensor itself, or this process's part of it."""
    return tensor.to_local() if is_distributed(tensor) else tensor


def has_memory(tensor: Tensor) -> bool:
    """Whether a tensor has memory, unless it needs none: it may have been freed."""
    here = local(tensor)
    return not here.numel() or here.untyped_storage().nbytes() > 0


def reason_without_address(tensor: Tensor) -> str | None:
    """Why a tensor has no entries in memory that can be pointed at, or None if it has."""
    # Subclasses that hold other tensors, or none, have no memory of their own.
    kinds: list[type] = [type(tensor), Tensor]
    dispatch = [getattr(kind, "__torch_dispatch__", None) for kind in kinds]
    if not is_distributed(tensor) and dispatch[0] is not dispatch[1]:
        return f"a {type(tensor).__name__} does not say where its entries are"
    if tensor.layout is torch.strided and not has_memory(tensor):
        return "the memory has been freed"
    return None


def storages_of(tensors: Iterable[Tensor]) -> set[int]:
    """Where the memory begins that tensors are part of; those that have none of their own are left out."""
    dense = [one for one in tensors if one.layout is torch.strided and not one.is_meta]
    return {local(one).untyped_storage().data_ptr() for one in dense if not reason_without_address(one)} - {0}


def form_of(tensor: object) -> object:
    """All of a tensor but where it is and what is in it.

    >>> weight = torch.zeros(4, 1)
    >>> form_of(weight) == form_of(weight.clone()), form_of(weight) == form_of(weight.T)
    (True, False)
    """
    if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
        return tensor.layout if isinstance(tensor, Tensor) else type(tensor)
    here = local(tensor)
    placed = (tensor.placements, tensor.device_mesh, tensor.shape) if is_distributed(tensor) else None
    return *_kind_of(tensor), here.shape, here.stride(), placed


def _kind_of(tensor: Tensor) -> tuple[object, ...]:
    """All of a dense tensor but its layout: only another tensor may have another kind."""
    return type(tensor), tensor.dtype, tensor.device, tensor.is_neg()


class Change(Enum):
    """What has happened to tensors since a snapshot."""

    NONE = "all is where it was"
    GRADIENTS = "gradients of the same form are elsewhere"
    OTHER = "anything else"


class TensorSnapshot:
    """Parameters with gradients, and other tensors, as they are at one moment; no tensor is held on to.

    >>> weight, buffer = torch.nn.Parameter(torch.zeros(2)), torch.zeros(2)
    >>> weight.grad = torch.ones(2)
    >>> snapshot = TensorSnapshot([weight], [buffer])
    >>> snapshot.change([weight], [buffer])
    <Change.NONE: 'all is where it was'>
    >>> snapshot.change([weight], [buffer.clone()])
    <Change.OTHER: 'anything else'>
    """

    gradient_addresses: list[int]
    """Where the gradients were when they were last looked at."""

    def __init__(self, parameters: Sequence[Tensor], others: Iterable[Tensor]) -> None:
        """Look at the tensors; all parameters have gradients."""
        tensors, gradients = [*parameters, *others], list(map(_gradient_of, parameters))
        self._is_distributed = any(map(is_distributed, [*tensors, *gradients]))
        self._kind_of = form_of if self._is_distributed else _kind_of
        self._kinds = list(map(self._kind_of, gradients))
        tensors, gradients = self._here(tensors), self._here(gradients)
        self._addresses = list(map(Tensor.data_ptr, tensors))
        self._shapes = list(map(Tensor.size, tensors[: len(parameters)]))
        self._layouts = _Layouts(tensors)
        self.gradient_addresses = list(map(Tensor.data_ptr, gradients))
        self._gradient_layouts = _Layouts(gradients)

    def change(self, parameters: Sequence[Tensor], others: Iterable[Tensor]) -> Change:
        """What has happened; gradients of the same form are expected from now on where they are now."""
        tensors, gradients = [*parameters, *others], list(map(_gradient_of, parameters))
        try:
            here, gradients_here = self._here(tensors), self._here(gradients)
            if list(map(Tensor.data_ptr, here)) != self._addresses or not self._layouts.hold(here):
                return Change.OTHER
            if not all(map(eq, map(Tensor.size, here), self._shapes)):
                return Change.OTHER
            addresses = list(map(Tensor.data_ptr, gradients_here))
            if not self._gradient_layouts.hold(gradients_here):
                return Change.OTHER
        except (AttributeError, TypeError, RuntimeError):  # None, sparse, or a subclass without memory
            return Change.OTHER
        if addresses == self.gradient_addresses:
            return Change.NONE
        if not all(map(eq, map(self._kind_of, gradients), self._kinds)):
            return Change.OTHER
        if not all(one.untyped_storage().nbytes() or not one.numel() for one in gradients_here):
            return Change.OTHER  # their memory has been freed
        self.gradient_addresses = addresses
        return Change.GRADIENTS

    def _here(self, tensors: list[Tensor]) -> list[Tensor]:
        return list(map(local, tensors)) if self._is_distributed else tensors


class _Layouts:
    """Strides and numbers of entries, compared one by one: new tuples would set off the garbage collector.

    Shapes, which take as long as both, are compared for parameters alone: gradients and state have them too.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._strides, self._entries = list(map(Tensor.stride, tensors)), list(map(Tensor.numel, tensors))

    def hold(self, tensors: Sequence[Tensor]) -> bool:
        are_alike = all(map(eq, map(Tensor.stride, tensors), self._strides))
        return are_alike and list(map(Tensor.numel, tensors)) == self._entries

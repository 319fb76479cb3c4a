"""Has a tensor moved or changed form? Kernels go by addresses, which are written down once.

Every step asks again, so that nothing is stepped where it was: parameters, their state and their gradients.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import attrgetter, eq
from typing import Any

import torch
from torch import Tensor

from symoptim.geometry.tensors import is_distributed

_gradient_of: Callable[[Tensor], Tensor] = attrgetter("grad")
_device_of: Callable[[Tensor], torch.device] = attrgetter("device")


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
    kind = type(tensor), tensor.dtype, tensor.device, tensor.is_neg()
    return *kind, here.shape, here.stride(), placed


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
        self._placed = self._placements(tensors, gradients)
        tensors, gradients = self._here(tensors), self._here(gradients)
        self._addresses, self._forms = list(map(Tensor.data_ptr, tensors)), _Forms(tensors)
        self.gradient_addresses, self._gradient_forms = (
            list(map(Tensor.data_ptr, gradients)),
            _Forms(gradients),
        )
        self._devices = list(map(_device_of, gradients))

    def change(self, parameters: Sequence[Tensor], others: Iterable[Tensor]) -> Change:
        """What has happened; gradients of the same form are expected from now on where they are now."""
        tensors, gradients = [*parameters, *others], list(map(_gradient_of, parameters))
        try:
            if self._is_distributed and self._placements(tensors, gradients) != self._placed:
                return Change.OTHER
            tensors, gradients = self._here(tensors), self._here(gradients)
            if list(map(Tensor.data_ptr, tensors)) != self._addresses or not self._forms.hold(tensors):
                return Change.OTHER
            addresses = list(map(Tensor.data_ptr, gradients))
            if not self._gradient_forms.hold(gradients):
                return Change.OTHER
        except (AttributeError, TypeError, RuntimeError):  # None, sparse, or a subclass without memory
            return Change.OTHER
        if addresses == self.gradient_addresses:
            return Change.NONE
        if list(map(_device_of, gradients)) != self._devices:
            return Change.OTHER
        if not all(one.untyped_storage().nbytes() or not one.numel() for one in gradients):
            return Change.OTHER  # their memory has been freed
        self.gradient_addresses = addresses
        return Change.GRADIENTS

    def _placements(self, tensors: Iterable[object], gradients: Iterable[object]) -> list[object]:
        """How tensors are spread over processes, if any is."""
        return list(map(form_of, [*tensors, *gradients])) if self._is_distributed else []

    def _here(self, tensors: list[Tensor]) -> list[Tensor]:
        return list(map(local, tensors)) if self._is_distributed else tensors


class _Forms:
    """What kernels take for granted of tensors at known addresses.

    Memory that was freed may come back with another type, so all of it is asked in every step; one by one, as
    lists of new tuples would set off the garbage collector.
    """

    _asked: tuple[Callable[[Any], object], ...] = (
        Tensor.size,
        Tensor.stride,
        attrgetter("dtype"),
        Tensor.is_neg,
        type,
    )

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._answers = [list(map(ask, tensors)) for ask in self._asked]

    def hold(self, tensors: Sequence[Tensor]) -> bool:
        both = zip(self._asked, self._answers, strict=True)
        return all(all(map(eq, map(ask, tensors), known)) for ask, known in both)

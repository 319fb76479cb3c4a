"""Whether the tensors of a table are where they were, looked at again in every step."""

from collections.abc import Callable
from enum import Enum
from operator import attrgetter
from typing import Any, Protocol

from torch import Tensor, nn

from symoptim.optim.native import Look, Seen, native_look
from symoptim.optim.places import Forms, Places, has_memory

_gradient_of: Callable[[Tensor], Any] = attrgetter("grad")


class Change(Enum):
    """What has happened to tensors since they were last looked at."""

    NONE = "all is where it was"
    GRADIENTS = "gradients of the same form are elsewhere"
    OTHER = "anything else"


class Watch(Protocol):
    """Tensors, the first of them with gradients, as they were when last looked at."""

    gradients: list[int]
    """Addresses of the gradients."""

    def change(self, tensors: list[Any]) -> Change:
        """What has happened to them. Gradients that are elsewhere are expected there from now on."""
        ...


def watch(tensors: list[Any], parameters: int) -> Watch:
    """Look at tensors for the first time.

    Args:
        tensors: parameters with gradients, and any others.
        parameters: how many of them are parameters.

    Returns:
        What notices changes.

    >>> import torch
    >>> weight, buffer = torch.nn.Parameter(torch.zeros(2)), torch.zeros(2)
    >>> weight.grad = torch.ones(2)
    >>> seen = watch([weight, buffer], 1)
    >>> seen.change([weight, buffer]), seen.change([weight, buffer.clone()])
    (<Change.NONE: 'all is where it was'>, <Change.OTHER: 'anything else'>)
    """
    look = native_look()
    # What others mean by their entries or their gradient is known in Python only.
    if look is None or not all(type(tensor) in (Tensor, nn.Parameter) for tensor in tensors):
        return Asked(tensors, parameters)
    seen = look(tensors, parameters)
    return Asked(tensors, parameters) if seen is None else Compiled(look, Seen(*seen), parameters)


class Compiled:
    """Tensors that are looked at in C++, all in one call."""

    def __init__(self, look: Look, seen: Seen, parameters: int) -> None:
        """Remember what was seen."""
        self._look, self._seen, self._parameters = look, seen, parameters
        self.gradients = _numbers(seen.gradient_addresses)

    def change(self, tensors: list[Any]) -> Change:
        """See :class:`Watch`."""
        seen = self._look(tensors, self._parameters)
        if seen == self._seen:
            return Change.NONE
        if seen is None or seen[:3] != self._seen[:3]:
            return Change.OTHER
        self._seen, self.gradients = Seen(*seen), _numbers(seen[3])
        gradients = map(_gradient_of, tensors[: self._parameters])
        # Those without entries are at address zero, as those whose memory was freed.
        are_there = 0 not in self.gradients or all(map(has_memory, gradients))
        return Change.GRADIENTS if are_there else Change.OTHER


class Asked:
    """Tensors that are asked from Python, by the calls torch has."""

    def __init__(self, tensors: list[Any], parameters: int) -> None:
        """Note down where they are, and how."""
        self._parameters = parameters
        gradients = list(map(_gradient_of, tensors[:parameters]))
        self._forms, self._gradient_forms = Forms(tensors), Forms(gradients)
        self._places, self._gradient_places = Places(tensors), Places(gradients)
        self.gradients = self._gradient_places.addresses

    def change(self, tensors: list[Any]) -> Change:
        """See :class:`Watch`."""
        if not (self._forms.hold(tensors) and self._places.hold(tensors)):
            return Change.OTHER
        gradients = list(map(_gradient_of, tensors[: self._parameters]))
        if not self._gradient_forms.hold(gradients):
            return Change.OTHER
        if self._gradient_places.hold(gradients):
            return Change.NONE
        self._gradient_places = Places(gradients)
        self.gradients = self._gradient_places.addresses
        return Change.GRADIENTS if all(map(has_memory, gradients)) else Change.OTHER


def _numbers(addresses: bytes) -> list[int]:
    return memoryview(addresses).cast("q").tolist()

"""Where tensors lie, looked at again in every step, so that kernels can rely on it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from symoptim.geometry.distributed import is_distributed

# One call for all tensors; to ask one after the other is most of what the host has to do in a step. The name
# is not public, and builds without CUDA do not have it.
_compared: Callable[[list[Any], list[int], list[int]], bool] | None = getattr(
    torch._C,  # pyright: ignore[reportPrivateUsage]
    "_tensors_data_ptrs_at_indices_equal",
    None,
)


def local(tensor: Tensor) -> Tensor:
    """The tensor itself, or this process's part of it."""
    return tensor.to_local() if is_distributed(tensor) else tensor


def address_of(tensor: Tensor) -> int:
    """Where the first entry of a tensor is."""
    return local(tensor).data_ptr()


def strides_of(tensor: Tensor) -> tuple[int, ...]:
    """Strides of a tensor, or of this process's part of it."""
    return local(tensor).stride()


class Places:
    """Addresses of tensors.

    >>> weight, bias = torch.zeros(2, 2), torch.zeros(2)
    >>> places = Places([weight, bias])
    >>> places.hold([weight, bias]), places.hold([weight, bias.clone()])
    (True, False)
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Note down where they are."""
        self._are_spread = any(map(is_distributed, tensors))
        self._every = list(range(len(tensors)))
        self.addresses = self.now(tensors)

    def now(self, tensors: Sequence[Tensor]) -> list[int]:
        """Where tensors are, as many as there were and spread over processes if they were."""
        return list(map(address_of if self._are_spread else Tensor.data_ptr, tensors))

    def hold(self, tensors: list[Any]) -> bool:
        """Whether tensors, as many as there were, are at these addresses; what has none is not."""
        try:
            if _compared is None or self._are_spread:
                return self.now(tensors) == self.addresses
            return _compared(tensors, self.addresses, self._every)
        except (AttributeError, RuntimeError, TypeError):  # no tensor, or one without memory of its own
            return False


class Orders:
    """The order of entries in tensors of several dimensions; others have only one.

    >>> weight = torch.zeros(2, 3)
    >>> orders = Orders([weight])
    >>> orders.hold([weight]), orders.hold([weight.T])
    (True, False)
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Note down strides where there is anything special about them, which takes longer to find out."""
        matrices = [index for index, tensor in enumerate(tensors) if tensor.ndim > 1]
        plain = {i for i in matrices if not is_distributed(tensors[i]) and tensors[i].is_contiguous()}
        self._plain = sorted(plain)
        self._others = [index for index in matrices if index not in plain]
        self._strides = [strides_of(tensors[index]) for index in self._others]

    def hold(self, tensors: Sequence[Tensor]) -> bool:
        """Whether tensors of the same shapes have their entries in these orders."""
        if not all(map(Tensor.is_contiguous, [tensors[index] for index in self._plain])):
            return False
        return [strides_of(tensors[index]) for index in self._others] == self._strides

"""Calls of a model with other weights, in float64, that leave nothing behind."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.errors import TraceError
from symoptim.symmetry.arguments import unpacked
from symoptim.symmetry.tensors import arguments_of, left_alone, tensors_in

NO_EPS = 1e-30  # torch refuses zero in training mode
Tensors = dict[str, Tensor]


class ExactCall:
    """A model with the arguments it is called with; constants in ``ignored`` are too small to be felt."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        keywords: Mapping[str, Any] | None = None,
        *,
        ignored: Collection[float] = (),
    ) -> None:
        """Prepare calls."""
        self.model, *self.arguments = unpacked(model, arguments_of(inputs), keywords)
        self.mode = _Exact(ignored)

    def tensors(self) -> Tensors:
        """Copies of the model's parameters and buffers, in float64; of tied ones under a single name."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        return {name: _wide(tensor.detach().clone()) for name, tensor in named}

    def once(self, tensors: Tensors) -> list[Tensor]:
        """Everything a call returns."""
        inputs, keywords = tree_map(_wide_copy, self.arguments)
        return self._called(tensors, inputs, keywords)

    def twice(self, tensors: Tensors) -> list[Tensor]:
        """Everything two calls return and write into their inputs; buffers go from one to the next."""
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        inputs, keywords = tree_map(_wide_copy, self.arguments)
        found = [one.clone() for one in self._called(tensors, inputs, keywords)]
        found += self._called(tensors, inputs, keywords)
        given: list[Any] = tree_leaves((inputs, keywords))
        return found + [one for one in given if isinstance(one, Tensor)]

    def _called(self, tensors: Tensors, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> list[Tensor]:
        with left_alone(self.model), cast("Any", torch).random.fork_rng(), self.mode:
            torch.default_generator.manual_seed(0)  # dropout drops the same
            found = tensors_in(functional_call(self.model, tensors, inputs, keywords))
        if not found:
            raise TraceError("the model returns no tensors: there is nothing to compare")
        return found


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _wide_copy(value: Any) -> Any:
    return _wide(value.detach().clone()) if isinstance(value, Tensor) else value


class _Exact(TorchDispatchMode):
    """What is asked for in float32 is made in float64, for many models compute their norms in float32."""

    def __init__(self, ignored: Collection[float]) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
        self.ignored = frozenset(ignored)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = {name: self._exact(value) for name, value in (kwargs or {}).items()}
        return func(*map(self._exact, args), **named)

    def _exact(self, value: Any) -> Any:
        if value is torch.float32:
            return torch.float64
        return NO_EPS if isinstance(value, float) and value in self.ignored else value

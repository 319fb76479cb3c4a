"""Runs of a model that leave nothing behind: copies with Python state of their own, random seeds restored."""

import copy
import random
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from symoptim.symmetry.tensors import model_tensors


class _SharedTensors(TorchFunctionMode):
    """Copies share parameters, buffers and whatever lies in their memory; other tensors are copied."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.memory = {_memory(tensor) for tensor in model_tensors(model).values()}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not cast("Any", Tensor).__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor = cast("Tensor", args[0])
        return tensor if _memory(tensor) in self.memory else tensor.detach().clone()


def _memory(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (NotImplementedError, RuntimeError):  # it has none of its own
        return id(tensor)


def isolated(model: nn.Module) -> nn.Module:
    """A model with the same tensors and Python state of its own; the model itself if it cannot be copied.

    >>> model = nn.Linear(2, 2)
    >>> isolated(model) is model, isolated(model).weight is model.weight
    (False, True)
    """
    shared = {id(tensor): tensor for tensor in model_tensors(model).values()}
    try:
        with _SharedTensors(model):
            return copy.deepcopy(model, shared)
    except Exception:  # it holds what nobody can copy: a lock, an open file
        return model


def set_seeds(seed: int) -> None:
    """Seed the random generators of Python, numpy and torch."""
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        cast("Any", numpy).random.seed(seed)


@contextmanager
def seeds_restored() -> Generator[None]:
    """Bring back the random generators of Python, numpy and torch."""
    numpy: Any = sys.modules.get("numpy")
    python, numbers = random.getstate(), numpy.random.get_state() if numpy is not None else None
    try:
        with cast("Any", torch).random.fork_rng():
            yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(numbers)

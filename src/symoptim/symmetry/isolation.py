"""Runs of a model that leave nothing behind: copies with Python state of their own, random seeds restored."""

import copy
import random
import sys
import types
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from symoptim.symmetry.memory import address, foreign, shares
from symoptim.symmetry.quiet import TRACING
from symoptim.symmetry.tensors import model_tensors


class _SharedTensors(TorchFunctionMode):
    """Copies share parameters, buffers and whatever lies in their memory; other tensors are copied."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.memory = {address(tensor) for tensor in model_tensors(model).values()}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not cast("Any", Tensor).__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor = cast("Tensor", args[0])
        return tensor if address(tensor) in self.memory else tensor.detach().clone()


def isolated(model: nn.Module) -> nn.Module:
    """A model with the same tensors and Python state of its own.

    What cannot be copied, such as a lock or an open file, is shared. Arrays may be views of tensors, and are
    shared, too, if they are.

    >>> model = nn.Linear(2, 2)
    >>> isolated(model) is model, isolated(model).weight is model.weight
    (False, True)
    """
    tensors = list(model_tensors(model).values())
    memo: dict[int, Any] = {id(tensor): tensor for tensor in tensors}
    for other in foreign(model):
        if shares(other, tensors):
            memo[id(other)] = other
    with _SharedTensors(model):
        return copied_with(model, memo)


def copied_with(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """A deep copy of a model, with whatever is in ``memo``; what cannot be copied is shared."""
    tried = dict(memo)
    try:
        found = copy.deepcopy(model, tried)
    except Exception:  # one of its attributes, for whatever reason, or of theirs
        return _by_modules(model, memo)
    memo.update(tried)
    return found


def _by_modules(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """The same, module by module and attribute by attribute."""
    modules = list(model.modules())
    for module in modules:
        memo[id(module)] = object.__new__(type(module))
    for module in modules:
        _fill(memo[id(module)], module, memo)
    return memo[id(model)]


def _fill(new: Any, old: Any, memo: dict[int, Any]) -> None:
    """Give an object the attributes of another, copied."""
    attributes = cast("dict[str, Any]", vars(old))
    cast("dict[str, Any]", vars(new)).update({name: _copy_of(one, memo) for name, one in attributes.items()})


def _copy_of(value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy, of which those parts are shared that cannot be copied."""
    tried = dict(memo)
    try:
        found = copy.deepcopy(value, tried)
    except Exception:  # a part of it, for whatever reason
        return _copy_of_parts(value, memo)
    memo.update(tried)
    return found


def _copy_of_parts(value: Any, memo: dict[int, Any]) -> Any:
    """A copy of a collection or an object, of which each part is copied, if it can be."""
    found: Any
    kind = cast("Any", type)(value)
    if issubclass(kind, dict):
        found = memo[id(value)] = copy.copy(value)
        found.update({name: _copy_of(one, memo) for name, one in found.items()})
    elif kind in (list, tuple, set):
        found = cast("Any", kind)(_copy_of(one, memo) for one in value)
    elif not issubclass(kind, type | types.ModuleType):
        try:
            found = memo[id(value)] = copy.copy(value)
            _fill(found, value, memo)
        except Exception:  # it has no attributes, or refuses to show them, or to be copied
            found = value
    else:
        found = value
    memo[id(value)] = found
    return found


def set_seeds(seed: int) -> None:
    """Seed the random generators of Python, numpy and torch; of torch's, those that are in use."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # else the seed would wait for it, and stay
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        cast("Any", numpy).random.seed(seed)


def _forked() -> AbstractContextManager[None]:
    """Bring back torch's generators; nothing is started on devices that are not in use."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    return cast("Any", torch).random.fork_rng(devices)


@contextmanager
def seeds_restored() -> Generator[None]:
    """Bring back the random generators of Python, numpy and torch; one thread at a time.

    All threads share these generators. A second thread would bring back what the first has set, and draw from
    its numbers.
    """
    with TRACING:
        numpy: Any = sys.modules.get("numpy")
        python, numbers = random.getstate(), numpy.random.get_state() if numpy is not None else None
        try:
            with _forked():
                yield
        finally:
            random.setstate(python)
            if numpy is not None:
                numpy.random.set_state(numbers)

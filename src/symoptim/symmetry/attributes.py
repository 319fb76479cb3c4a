"""Attributes of a model's modules that are no tensors: state of Python that changes from call to call."""

import random
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, cast

from torch import Tensor, nn

DEPTH = 4  # of values in values
OWN = frozenset(vars(nn.Module())) - {"training"}
"""Attributes that torch gives to every module."""


def changing(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Modules whose attributes are others than before.

    >>> model = nn.Sequential(nn.ReLU())
    >>> model[0].calls = [1]
    >>> before = attributes_of(model)
    >>> model[0].calls.append(2)
    >>> changing(before, attributes_of(model))
    {'0'}
    """
    return {name for name, state in after.items() if before.get(name) != state}


def attributes_of(model: nn.Module) -> dict[str, Any]:
    """Attributes of all modules, in a form that can be compared later.

    A tensor that takes the place of another is no change: a pass that reads it takes it for a constant. To
    write into one is.
    """
    named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    return {
        name: _frozen({key: one for key, one in vars(module).items() if key not in OWN})
        for name, module in named
    }


def _frozen(value: Any, depth: int = DEPTH) -> Any:
    if isinstance(value, bool | int | float | str | bytes | None):
        return value
    if isinstance(value, Tensor):
        return "a tensor" if value.is_inference() else _Version(value)
    if isinstance(value, nn.Module) or depth == 0:
        return type(value).__name__
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return tuple((str(key), _frozen(one, depth - 1)) for key, one in items)
    if isinstance(value, list | tuple | set | frozenset | deque):
        return tuple(_frozen(one, depth - 1) for one in cast("Iterable[Any]", value))
    if isinstance(value, random.Random):
        return value.getstate()
    if hasattr(value, "bit_generator"):  # a generator of NumPy
        return str(value.bit_generator.state)
    return type(value).__name__, _frozen(dict(getattr(value, "__dict__", {})), depth - 1)


class _Version:
    """A tensor at some time; another tensor is equal to it, but the same one only if nothing was written."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version = tensor, tensor._version

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Version):
            return False
        return self.tensor is not other.tensor or self.version == other.version

    __hash__ = None  # pyright: ignore[reportAssignmentType]

"""Attributes of a model's modules that are no tensors: state of Python that changes from call to call."""

import random
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from numbers import Number
from types import GeneratorType, ModuleType
from typing import Any, cast

from torch import Tensor, nn

from symoptim.symmetry.arguments import inside

DEPTH = 30  # of values in values
HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
"""Attributes with functions that a module runs before and after its own: they may keep something, too."""
OWN = frozenset(vars(nn.Module())) - {"training", *HOOKS}
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
        name: _frozen({key: one for key, one in vars(module).items() if key not in OWN}, {}, DEPTH)
        for name, module in named
    }


def _frozen(value: Any, seen: dict[int, Any], depth: int) -> Any:
    """A value in a form that can be compared; what was seen before is not looked into again."""
    if isinstance(value, bool | str | bytes | Number | None):
        return value
    if isinstance(value, bytearray | memoryview | array):
        return bytes(cast("Any", value))
    if isinstance(value, Tensor):
        return "a tensor" if value.is_inference() else _Version(value)
    kind = type(value).__name__
    if id(value) in seen or depth == 0 or isinstance(value, nn.Module | ModuleType | type):
        return kind
    seen[id(value)] = value
    if isinstance(value, random.Random):
        return value.getstate()
    if hasattr(value, "bit_generator"):  # a generator of NumPy
        return str(value.bit_generator.state)
    if hasattr(value, "tobytes") and hasattr(value, "shape"):  # an array of NumPy
        return value.shape, value.tobytes()
    if isinstance(value, range | slice):
        return repr(cast("object", value))
    if isinstance(value, deque):
        parts: Iterable[Any] = cast("deque[Any]", value)
    else:
        parts = [*inside(value), *_left_of(value)]
    names = tuple(map(str, cast("Mapping[Any, Any]", value))) if isinstance(value, Mapping) else ()
    return kind, names, *(_frozen(one, seen, depth - 1) for one in parts)


def _left_of(value: Any) -> Iterable[Any]:
    """Where an iterator is; nothing is taken from it."""
    if isinstance(value, GeneratorType):
        frame = cast("GeneratorType[Any, Any, Any]", value).gi_frame
        return () if frame is None else (frame.f_lasti, dict(frame.f_locals))
    if not isinstance(value, Iterator) or type(cast("object", value)).__module__ not in PLAIN:
        return ()
    try:
        parts: Any = cast("Any", value).__reduce__()  # how it would be copied
    except TypeError:  # later versions of Python do not tell
        return ()
    return cast("tuple[Any, ...]", parts)[1:] if isinstance(parts, tuple) else ()


PLAIN = ("builtins", "itertools")
"""Modules whose iterators say where they are when they are copied."""


class _Version:
    """A tensor at some time; another tensor is equal to it, but the same one only if nothing was written."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version = tensor, tensor._version

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Version):
            return False
        return self.tensor is not other.tensor or self.version == other.version

    __hash__ = None  # pyright: ignore[reportAssignmentType]

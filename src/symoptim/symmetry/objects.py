"""What Python objects refer to."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import CellType, FunctionType, MemberDescriptorType, MethodType
from typing import Any, cast

from torch import Tensor

DEPTH = 5
"""Of objects in objects that are searched for tensors."""


def walk(
    roots: Iterable[object], parts: Callable[[Any], Iterable[Any]], depth: float = math.inf
) -> Iterator[Any]:
    """All objects that some lead to by their parts, each once.

    >>> list(walk([(1, [2])], lambda one: one if isinstance(one, list | tuple) else ()))
    [(1, [2]), [2], 2, 1]
    """
    waiting, seen = [(root, depth) for root in roots], set[int]()
    while waiting:
        value, left = waiting.pop()
        if id(value) not in seen:
            seen.add(id(value))
            yield value
            waiting += [(one, left - 1) for one in parts(value)] if left else []


def holds_tensors(value: Any, depth: int = DEPTH) -> bool:
    """Whether there is a tensor, or an array, in an object, or in what it refers to.

    >>> import torch
    >>> holds_tensors([1, {"a": lambda: None}]), holds_tensors({"a": (torch.ones(1),)})
    (False, True)
    """
    if isinstance(value, Tensor):
        return True
    if hasattr(cast("Any", type(value)), "__array__"):
        return value.shape != ()
    if depth == 0 or isinstance(value, type | str | bytes | int | float | complex | None):
        return False
    return any(holds_tensors(one, depth - 1) for one in inside(value))


def inside(value: Any) -> list[Any]:
    """What an object refers to."""
    if isinstance(value, Mapping):
        found = list(cast("Mapping[Any, Any]", value).values())
    elif isinstance(value, list | tuple | set | frozenset):
        found = list(cast("list[Any]", value))
    elif isinstance(value, functools.partial):
        found = [*value.args, *value.keywords.values(), value.func]
    elif isinstance(value, MethodType):
        found = [value.__self__]
    elif isinstance(value, FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
    else:
        found = []
    plain = type(cast("Any", value)).__module__ == "builtins"
    return found if plain else [*found, *attributes_in(cast("object", value)).values()]


def attributes_in(value: object) -> dict[str, Any]:
    """Attributes of an object itself, also those in slots."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType) and kind.__module__ != "builtins":
                with suppress(AttributeError):  # nothing is there
                    found[name] = member.__get__(value)
    return found

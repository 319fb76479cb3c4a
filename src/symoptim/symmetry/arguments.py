"""Arguments whose tensors torch does not see, because their class is no container that it knows.

Such tensors would be taken for constants, with the values they happen to have. Dataclasses, dictionaries and
named tuples are unpacked; everything else that holds tensors is refused.
"""

import copy
import functools
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import CellType, FunctionType, MemberDescriptorType, MethodType
from typing import Any, cast

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from symoptim.errors import OptionError

DEPTH = 5  # of objects in objects that are searched for tensors


def unpacked(
    model: nn.Module, inputs: tuple[Any, ...], keywords: Mapping[str, Any] | None = None
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A call of a model in which torch sees all tensors.

    Args:
        model: the network.
        inputs: positional arguments of a call.
        keywords: its other arguments.

    Returns:
        The model and its arguments. What has to be unpacked is a dictionary there, and the model a stand-in
        that accepts these, with the same tensors and modules.

    Raises:
        OptionError: an argument holds tensors, and cannot be unpacked.
    """
    given: Any = (tuple(inputs), dict(keywords or {}))
    leaves, tree = tree_flatten(given)
    plain = [_plain(leaf) for leaf in leaves]
    if all(one is other for one, other in zip(leaves, plain, strict=True)):
        return model, *given
    return _stand_in(model, given), *tree_unflatten(plain, tree)


def _plain(leaf: Any) -> Any:
    """A dictionary of those parts that hold tensors, if it is no tensor itself."""
    if isinstance(leaf, Tensor) or not holds_tensors(leaf):
        return leaf
    parts, rest = _parts(leaf)
    if not parts or any(map(holds_tensors, rest)):
        name = f"{type(leaf).__module__}.{type(leaf).__qualname__}".removeprefix("builtins.")
        raise OptionError(
            f"an argument is a {name}, and torch does not see the tensors in it: give tensors themselves, or "
            "register the class (torch.export.register_dataclass, torch.utils._pytree.register_pytree_node)"
        )
    return {name: tree_map(_plain, value) for name, value in parts.items() if holds_tensors(value)}


def _parts(value: Any) -> tuple[dict[Any, Any], list[Any]]:
    """Parts that can be replaced, by name, and whatever else there is."""
    found = _attributes(value)
    if is_dataclass(value):
        parts = {field.name: getattr(value, field.name, None) for field in fields(value)}
    elif isinstance(value, MutableMapping):
        parts = dict(cast("Mapping[Any, Any]", value))
        # One attribute of a UserDict is the dictionary itself.
        found = {name: one for name, one in found.items() if not _is_dictionary_of(one, parts)}
    elif isinstance(value, tuple) and hasattr(cast("Any", value), "_replace"):
        parts = cast("Any", value)._asdict()
    else:
        return {}, []
    return parts, [one for name, one in found.items() if name not in parts]


def _is_dictionary_of(value: Any, parts: Mapping[Any, Any]) -> bool:
    if not isinstance(value, Mapping) or len(cast("Any", value)) != len(parts):
        return False
    return all(parts.get(name) is one for name, one in cast("Mapping[Any, Any]", value).items())


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
    return found if plain else [*found, *_attributes(value).values()]


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes of an object itself, also those in slots."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType) and kind.__module__ != "builtins":
                with suppress(AttributeError):  # nothing is there
                    found[name] = member.__get__(value)
    return found


def _stand_in(model: nn.Module, given: Any) -> nn.Module:
    """A module with the attributes of another, whose arguments become what was given before it is called."""
    stand_in: nn.Module = object.__new__(type(model))
    vars(stand_in).update(vars(model))
    own: Callable[..., Any] | None = vars(model).get("forward")

    @functools.wraps(own or type(model).forward)
    def forward(self: nn.Module, *inputs: Any, **keywords: Any) -> Any:
        inputs, keywords = _repacked(given, (inputs, keywords))
        return own(*inputs, **keywords) if own else type(model).forward(self, *inputs, **keywords)

    vars(stand_in)["forward"] = MethodType(forward, stand_in)  # copies of the stand-in have their own
    return stand_in


def _repacked(original: Any, plain: Any) -> Any:
    """Arguments as they were given, with the tensors of others."""
    leaves, tree = tree_flatten(original)
    others = cast("Any", tree).flatten_up_to(plain)
    return tree_unflatten([_with(one, other) for one, other in zip(leaves, others, strict=True)], tree)


def _with(original: Any, parts: Any) -> Any:
    """A copy of an object with other parts, if it has been unpacked; otherwise what is in its place."""
    if isinstance(original, Tensor) or not isinstance(parts, dict):
        return parts
    old, _ = _parts(original)
    new = {name: _repacked(old[name], part) for name, part in cast("dict[Any, Any]", parts).items()}
    if isinstance(original, tuple):
        return cast("Any", original)._replace(**new)
    other: Any = copy.copy(original)
    for name, part in new.items():
        if isinstance(other, MutableMapping):
            other[name] = part
        else:
            object.__setattr__(other, name, part)  # it may be frozen
    return cast("Any", other)

"""How a model is called when its symmetries are sought, and arguments whose tensors torch does not see.

Where the class of an argument is no container that torch knows, tensors in it would be taken for constants,
with the values they happen to have. Dataclasses, dictionaries and named tuples are unpacked; everything else
that holds tensors is refused.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from types import MethodType
from typing import Any, cast

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from symoptim.errors import OptionError, PathWarning, warn_user
from symoptim.symmetry.objects import attributes_in, holds_tensors
from symoptim.symmetry.tensors import arguments_of

CACHE = "use_cache"


def prepared(
    model: nn.Module, inputs: tuple[object, ...], keywords: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Keywords of a call, without the cache that language models of Hugging Face return by default.

    A cache holds keys and values, which a rescaling may change while the prediction stays: as an output it
    would pin them, or it is an object in which no tensors can be seen. Where ``config.use_cache`` is set, of
    the model or of one that it hands its keywords on to (a wrapper of PEFT), that model's forward accepts
    ``use_cache`` and the call does not give it, it is called with ``use_cache=False``.

    Args:
        model: the network.
        inputs: positional arguments of the call.
        keywords: its other arguments.

    Returns:
        The keywords, with ``use_cache=False`` where that holds.

    >>> class Cached(nn.Linear):
    ...     config = type("Config", (), {"use_cache": True})
    ...
    ...     def forward(self, input, use_cache=None):
    ...         return super().forward(input)
    >>> prepared(Cached(2, 3), ()), prepared(nn.Linear(2, 3), ())
    ({'use_cache': False}, {})
    """
    named = dict(keywords or {})
    return {**named, CACHE: False} if CACHE not in named and _caches(model, len(inputs)) else named


def calls_of(inputs: object) -> list[tuple[tuple[Any, ...], Mapping[str, Any] | None]]:
    """Calls: a list has several; each is a tuple of positional arguments, keywords, or a pair of both.

    Keywords are None where only positional arguments are given.

    >>> calls_of([(1, 2), {"x": 3}, ((4,), {"x": 5}), 6])
    [((1, 2), None), ((), {'x': 3}), ((4,), {'x': 5}), ((6,), None)]
    >>> calls_of((1, 2)), calls_of([])
    ([((1, 2), None)], [])
    """
    return [_call(one) for one in (cast("list[Any]", inputs) if isinstance(inputs, list) else [inputs])]


def warn_of_empty(positional: tuple[object, ...], keywords: Mapping[str, object]) -> None:
    """Say so if there is nothing in the tensors of a call: whatever a model computes of them is nothing."""
    tensors = [one for one in tree_leaves((positional, dict(keywords))) if isinstance(one, Tensor)]
    if tensors and not any(one.numel() for one in tensors):
        warn_user(
            f"the example has no entries (a tensor of shape {tuple(tensors[0].shape)}): nothing is seen on "
            "it, and all that it passes through is pinned. Give one with at least one row",
            PathWarning,
        )


def _call(given: object) -> tuple[tuple[Any, ...], Mapping[str, Any] | None]:
    if isinstance(given, Mapping):
        return (), cast("Mapping[str, Any]", given)
    positional = arguments_of(given)
    if len(positional) == 2 and isinstance(positional[0], tuple) and isinstance(positional[1], Mapping):
        return cast("tuple[tuple[Any, ...], Mapping[str, Any]]", positional)
    return positional, None


def _caches(model: nn.Module, given: int) -> bool:
    """Whether a model returns a cache if it is not asked to leave that out, and can be asked to."""
    parameters = _parameters(model)
    if CACHE in parameters:
        left_open = list(parameters).index(CACHE) >= given
        return left_open and getattr(getattr(model, "config", None), CACHE, False) is True
    passes_on = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return passes_on and any(_caches(inner, 0) for inner in model.children())


def _parameters(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Parameters of forward by name; none where Python cannot see them."""
    try:
        return inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return {}


def unpacked(
    model: nn.Module, inputs: tuple[object, ...], keywords: Mapping[str, object] | None = None
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


def _plain(leaf: object) -> Any:
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


def _parts(value: object) -> tuple[dict[Any, Any], list[Any]]:
    """Parts that can be replaced, by name, and whatever else there is."""
    found = attributes_in(value)
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


def _is_dictionary_of(value: object, parts: Mapping[Any, Any]) -> bool:
    if not isinstance(value, Mapping) or len(cast("Any", value)) != len(parts):
        return False
    return all(parts.get(name) is one for name, one in cast("Mapping[Any, Any]", value).items())


def _stand_in(model: nn.Module, given: object) -> nn.Module:
    """A module with the attributes of another, whose arguments become what was given before it is called."""
    stand_in: nn.Module = object.__new__(type(model))
    vars(stand_in).update(vars(model))
    own: Callable[..., Any] | None = vars(model).get("forward")

    @functools.wraps(own or type(model).forward)
    def forward(self: nn.Module, *inputs: object, **keywords: object) -> Any:
        inputs, keywords = _repacked(given, (inputs, keywords))
        return own(*inputs, **keywords) if own else type(model).forward(self, *inputs, **keywords)

    vars(stand_in)["forward"] = MethodType(forward, stand_in)  # copies of the stand-in have their own
    return stand_in


def _repacked(original: object, plain: object) -> Any:
    """Arguments as they were given, with the tensors of others."""
    leaves, tree = tree_flatten(original)
    others = cast("Any", tree).flatten_up_to(plain)
    return tree_unflatten([_with(one, other) for one, other in zip(leaves, others, strict=True)], tree)


def _with(original: object, parts: object) -> Any:
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

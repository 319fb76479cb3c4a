"""How a model is called when its symmetries are sought."""

import inspect
from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from symoptim.errors import PathWarning, warn_user
from symoptim.symmetry.tensors import arguments_of

CACHE = "use_cache"


def prepared(
    model: nn.Module, inputs: tuple[Any, ...], keywords: Mapping[str, Any] | None = None
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


def calls_of(inputs: Any) -> list[tuple[tuple[Any, ...], Mapping[str, Any] | None]]:
    """Calls: a list has several; each is a tuple of positional arguments, keywords, or a pair of both.

    Keywords are None where only positional arguments are given.

    >>> calls_of([(1, 2), {"x": 3}, ((4,), {"x": 5}), 6])
    [((1, 2), None), ((), {'x': 3}), ((4,), {'x': 5}), ((6,), None)]
    >>> calls_of((1, 2)), calls_of([])
    ([((1, 2), None)], [])
    """
    return [_call(one) for one in (cast("list[Any]", inputs) if isinstance(inputs, list) else [inputs])]


def warn_of_empty(positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
    """Say so if there is nothing in the tensors of a call: whatever a model computes of them is nothing."""
    tensors = [one for one in tree_leaves((positional, dict(keywords))) if isinstance(one, Tensor)]
    if tensors and not any(one.numel() for one in tensors):
        warn_user(
            f"the example has no entries (a tensor of shape {tuple(tensors[0].shape)}): nothing is seen on "
            "it, and all that it passes through is pinned. Give one with at least one row",
            PathWarning,
        )


def _call(given: Any) -> tuple[tuple[Any, ...], Mapping[str, Any] | None]:
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

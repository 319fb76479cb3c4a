"""Small operations on tensors that torch leaves untyped or does not have."""

import functools
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from symoptim.errors import TraceError, with_article

Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")


def on_cpu(function: Callable[Arguments, Found]) -> Callable[Arguments, Found]:
    """A function whose own tensors are on the CPU, whatever ``torch.set_default_device`` says.

    >>> with torch.device("meta"):
    ...     on_cpu(torch.zeros)(2).device.type
    'cpu'
    """

    @functools.wraps(function)
    def there(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Found:
        with torch.device("cpu"):
            return function(*arguments, **keywords)

    return there


def can_move(tensor: Tensor) -> bool:
    """Whether a parameter or buffer can be rescaled: dense numbers of more than eight bits."""
    return tensor.is_floating_point() and keeps_digits(tensor) and tensor.layout == torch.strided


def keeps_digits(tensor: Tensor) -> bool:
    """Whether numbers of its type are as fine wherever they are: no integers, no floats of eight bits.

    Those have two or three binary digits, and few exponents: what they round to depends on the scale.
    """
    return tensor.is_complex() or (tensor.is_floating_point() and tensor.itemsize > 1)


def filled(axes: int, value: int) -> Tensor:
    """A tensor of that many axes, all of size 1."""
    return torch.full([1] * axes, value)


def aligned(tensor: Tensor, axes: int) -> Tensor:
    """A tensor with axes of size 1 in front, as broadcasting would give it."""
    return tensor.reshape([1] * (axes - tensor.dim()) + list(tensor.shape))


def squeezed(tensor: Tensor) -> Tensor:
    """The same values, of size 1 along every axis they do not vary along.

    >>> squeezed(torch.tensor([[1, 1], [2, 2]])).shape
    torch.Size([2, 1])
    """
    for axis in range(tensor.dim()):
        if tensor.shape[axis] > 1:
            first = tensor.narrow(axis, 0, 1)
            if tensor.stride(axis) == 0 or bool((tensor == first).all()):
                tensor = first
    return tensor


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Shape that tensors of these shapes broadcast to."""
    return tuple(cast("Any", torch).broadcast_shapes(*shapes))


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors broadcast to one shape, stacked along a new last axis."""
    return torch.stack(list(cast("Any", torch).broadcast_tensors(*tensors)), dim=-1)


def unique_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows of a table, and for every row which of them it is.

    >>> unique_rows(torch.tensor([[2, 1], [0, 5], [2, 1]]))
    (tensor([[0, 5],
            [2, 1]]), tensor([1, 0, 1]))
    """
    if not table.numel():
        return table[:1], torch.zeros(len(table), dtype=torch.int64)
    low = int(table.min())
    size = int(table.max()) - low + 1
    # A row as one number, digit by digit: sorting numbers is many times faster than sorting rows.
    key, bound = table[:, 0] - low, size
    for column in table.unbind(dim=1)[1:]:
        if bound * size >= LARGEST:
            different, key = unique_values(key)
            bound = len(different)
        key, bound = key * size + (column - low), bound * size
    different, which = unique_values(key)
    return table[first_places(which, len(different))], which


LARGEST = 2**62


def first_places(which: Tensor, count: int) -> Tensor:
    """Where each number first occurs."""
    places = torch.arange(len(which))
    return torch.full((count,), len(which)).scatter_reduce_(0, which, places, "amin")


def unique_values(values: Tensor) -> tuple[Tensor, Tensor]:
    """The different values in order, and for every one which of them it is."""
    different, which = cast("Any", torch).unique(values, return_inverse=True)
    return different, which


def whole_numbers(tensor: Tensor) -> list[int]:
    """The values of an integer vector."""
    return cast("list[int]", cast("Any", tensor).tolist())


def different_values(tensor: Tensor) -> list[float]:
    """The different values of a tensor, in order."""
    return cast("list[float]", cast("Any", unique_values(tensor)[0]).tolist())


def arguments_of(inputs: object) -> tuple[Any, ...]:
    """Positional arguments: a tuple of them, or a single one."""
    return cast("tuple[Any, ...]", inputs) if isinstance(inputs, tuple) else (inputs,)


def tensors_in(output: object) -> list[Tensor]:
    """All tensors a model returns.

    Raises:
        TraceError: it returns something tensors cannot be seen in.
    """
    leaves: list[Any] = tree_leaves(output)
    for leaf in leaves:
        if not isinstance(leaf, Tensor | int | float | complex | str | bytes | torch.dtype | None):
            raise TraceError(
                f"the model returns {with_article(type(leaf).__name__)}, and tensors in it cannot be seen: "
                "let it return tensors, tuples, lists or dictionaries, or register the class with "
                "torch.utils._pytree; if "
                'it is a cache, call without it (keywords={"use_cache": False}, or use_cache = False in '
                "its config)"
            )
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


@contextmanager
def left_alone(model: nn.Module, *, attributes: bool = True) -> Generator[None]:
    """Bring back the tensors that a pass replaces in a model's modules.

    Nothing else: what libraries note there about hooks they have installed belongs to these hooks.

    Args:
        model: the network.
        attributes: whether to bring back plain attributes too, beside parameters and buffers.
    """
    first = 0 if attributes else 1
    places = [place for module in model.modules() for place in _holding_tensors(module)[first:]]
    before = [{name: value for name, value in place.items() if isinstance(value, Tensor)} for place in places]
    try:
        yield
    finally:
        for place, tensors in zip(places, before, strict=True):
            for name in [name for name, value in place.items() if isinstance(value, Tensor)]:
                if name not in tensors:
                    del place[name]
            place.update(tensors)


@contextmanager
def values_restored(tensors: Iterable[Tensor]) -> Generator[None]:
    """Bring back the values of tensors, should a pass have written to them."""
    plain = [one for one in tensors if type(one) in (Tensor, nn.Parameter)]
    own = [one for one in plain if one.layout == torch.strided and not (one.is_meta or one.is_quantized)]
    before = [one.detach().clone() for one in own]
    try:
        yield
    finally:
        for tensor, values in zip(own, before, strict=True):
            if not torch.equal(tensor.detach(), values):
                tensor.data.copy_(values)


def _holding_tensors(module: nn.Module) -> list[dict[str, Any]]:
    """Dictionaries of a module's attributes, parameters and buffers."""
    attributes = vars(module)
    return [attributes, *(attributes[name] for name in ("_parameters", "_buffers") if name in attributes)]


def plain_tensors(model: nn.Module) -> list[Tensor]:
    """Tensors that modules have as plain attributes."""
    values = (value for module in model.modules() for value in vars(module).values())
    return [value for value in values if isinstance(value, Tensor)]


def sum_of_few(terms: Sequence[Tensor]) -> Tensor:
    """The sum of tensors that broadcast, of slices that are alike in all of them up to two each.

    >>> rows, columns = torch.tensor([[1.0], [0.0], [0.0], [0.0]]), torch.tensor([[0.0, 0.0, 0.0, 2.0]])
    >>> sum_of_few([rows, columns]).shape
    torch.Size([3, 3])
    """
    chosen = list(terms)
    for axis in range(chosen[0].dim()):
        wide = [term for term in chosen if term.shape[axis] > 1]
        if wide:
            size = wide[0].shape[axis]
            profile = torch.cat([term.movedim(axis, 0).reshape(size, -1) for term in wide], dim=1)
            _, which = cast("Any", torch).unique(profile, dim=0, return_inverse=True)
            kept = [place for place, number in enumerate(_occurrences(which)) if number < 2]
            places = torch.tensor(kept)
            chosen = [term.index_select(axis, places) if term.shape[axis] > 1 else term for term in chosen]
    return sum(chosen[1:], chosen[0])


def _occurrences(which: Tensor) -> list[int]:
    """How often each number has occurred before."""
    seen: dict[int, int] = {}
    found: list[int] = []
    for number in whole_numbers(which):
        found.append(seen.get(number, 0))
        seen[number] = found[-1] + 1
    return found


def own_tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers of a model, each once."""
    return [*model.named_parameters(), *model.named_buffers()]


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by every name they have."""
    found: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    found.update(model.named_buffers(remove_duplicate=False))
    return found

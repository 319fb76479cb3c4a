"""Other calls of a model: inputs of other values and of other sizes than an example.

A model may take another path for them. Which sizes are worth a try: :mod:`.sizes`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from symoptim.symmetry.tensors import on_cpu

LARGEST_INPUT = 2**16
"""Entries of an input that is tried though the example has fewer; four times the example is always tried."""


Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments of a call."""


class Call(NamedTuple):
    """Arguments of a call of the model."""

    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments, in order."""
        leaves: list[Any] = tree_leaves((self.inputs, dict(self.keywords)))
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def changed(self, change: Callable[[int, Tensor], Tensor]) -> "Call":
        """The same call with other tensors; ``change`` gets the number of each and the tensor itself."""
        leaves, tree = tree_flatten((self.inputs, dict(self.keywords)))
        count, done = 0, dict[int, Tensor]()  # a tensor that is given twice stays one
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                if id(leaf) not in done:
                    done[id(leaf)] = change(count, leaf)
                leaves[place], count = done[id(leaf)], count + 1
        inputs, keywords = cast("tuple[tuple[Any, ...], dict[str, Any]]", tree_unflatten(leaves, tree))
        return Call(inputs, keywords)


def other_values(call: Call, seed: int = 0) -> list[Call]:
    """Calls with tensors of the same sizes and other values: negated, random, zero, ten times as large.

    Integers stay between the smallest and the largest of the example, for they may be places of a table, but
    for zeros; a mask of ones gets zeros.

    >>> [call.inputs[0].tolist() for call in other_values(Call((torch.tensor([2, 3, 3]),), {}))[::2]]
    [[3, 2, 2], [0, 0, 0]]
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    if any(tensor.device.type == "meta" for tensor in call.tensors()):
        return []  # there are no values

    def random(tensor: Tensor) -> Tensor:
        return _random(tensor, generator)

    kinds: list[Callable[[Tensor], Tensor]] = [_negated, random, torch.zeros_like, _large]
    return [_changed(call, kind) for kind in kinds]


def _changed(call: Call, kind: Callable[[Tensor], Tensor]) -> Call:
    return call.changed(lambda _, tensor: kind(tensor.detach()))


def _negated(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.bool:
        return ~tensor
    if tensor.is_floating_point() or tensor.is_complex() or not tensor.numel():
        return -tensor
    return tensor.max() + tensor.min() - tensor


def _random(tensor: Tensor, generator: torch.Generator) -> Tensor:
    if not tensor.numel() or tensor.is_complex() or tensor.layout != torch.strided:
        return tensor.clone()
    if tensor.is_floating_point():
        drawn = torch.randn(tensor.shape, generator=generator, device="cpu")
        size = float(tensor.abs().max()) / 2 or 1.0
        return (drawn * size).to(tensor.device, tensor.dtype)
    low, high = int(tensor.min()), int(tensor.max())
    if low == high and low in (0, 1):
        low, high = 0, 1
    drawn = torch.randint(low, high + 1, tensor.shape, generator=generator, device="cpu")
    return drawn.to(tensor.device, tensor.dtype)


def _large(tensor: Tensor) -> Tensor:
    if tensor.is_floating_point() or tensor.is_complex():
        return 10 * tensor
    return torch.full_like(tensor, int(tensor.max())) if tensor.numel() else tensor


Axis = tuple[int, int]
"""Number of a tensor of a call, and one of its axes."""


def resized(call: Call, sizes: Mapping[Axis, int], example: Call | None = None) -> Call | None:
    """The same call with axes of other sizes, values repeated; None if too large for the example.

    >>> resized(Call((torch.tensor([1, 2, 3]),), {}), {(0, 0): 5}).inputs[0].tolist()
    [1, 2, 3, 1, 2]
    """

    def change(number: int, tensor: Tensor) -> Tensor:
        for (mine, axis), size in sizes.items():
            if mine == number and tensor.layout in (torch.strided, torch.sparse_coo):  # others take none out
                places = torch.arange(size, device=tensor.device) % max(1, tensor.shape[axis])
                tensor = tensor.detach().index_select(axis, places)
        return tensor

    before = sum(tensor.numel() for tensor in (example or call).tensors())
    after = sum(
        tensor.numel() // max(1, tensor.shape[axis]) * size
        for number, tensor in enumerate(call.tensors())
        for (mine, axis), size in sizes.items()
        if mine == number
    )
    return call.changed(change) if after <= max(4 * before, LARGEST_INPUT) else None


class OtherCall(NamedTuple):
    """A call, and in words how it differs from the example."""

    what: str
    arguments: Arguments
    given: bool = False
    """Whether the user gave it."""


@on_cpu
def other_calls(arguments: Arguments, *, lengths: bool = True) -> list[OtherCall]:
    """A call of other values, and for every size of axes one that is longer and one that is shorter.

    The model may refuse them.

    Args:
        arguments: of the example.
        lengths: whether other lengths are wanted, too.

    Returns:
        The calls.

    >>> [one.what for one in other_calls(((torch.rand(2, 4),), {}))]
    ['other values', 'length 3 for 2', 'length 1 for 2', 'length 7 for 4', 'length 3 for 4']
    """
    generator = torch.Generator().manual_seed(0)
    tensors = tensors_of(arguments)
    found = [OtherCall("other values", _with(arguments, {}, generator))]
    if lengths:
        sizes = dict.fromkeys(size for one in tensors for size in one.shape if size > 1)
        found += [
            OtherCall(f"length {new} for {old}", _with(arguments, {old: new}, generator))
            for old in sizes
            for new in (2 * old - 1, old - 1)
        ]
    return found


def tensors_of(arguments: Arguments) -> list[Tensor]:
    """All tensors among arguments, in order."""
    given: list[Any] = tree_leaves((arguments[0], dict(arguments[1])))
    return [one for one in given if isinstance(one, Tensor)]


def are_equal(one: Arguments, other: Arguments) -> bool:
    """Whether two calls are the same: containers, the values of tensors, all other arguments.

    >>> are_equal(((torch.ones(2), 1), {}), ((torch.ones(2), 1), {}))
    True
    >>> are_equal(((torch.ones(2), 1), {}), ((torch.ones(2), 2), {}))
    False
    """
    leaves, tree = tree_flatten((one[0], dict(one[1])))
    others, other_tree = tree_flatten((other[0], dict(other[1])))
    return tree == other_tree and all(map(_is_equal, leaves, others))


def _is_equal(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = (one.device, one.dtype) == (other.device, other.dtype)
        return one is other or (alike and torch.equal(one, other))
    plain = type(one) is type(other) and isinstance(one, int | float | str)
    return one is other or (plain and one == other)


def _with(arguments: Arguments, sizes: dict[int, int], generator: torch.Generator) -> Arguments:
    def drawn(value: object) -> Any:
        return _values_like(value, sizes, generator) if isinstance(value, Tensor) else value

    positional, keywords = tree_map(drawn, (arguments[0], dict(arguments[1])))
    return positional, keywords


def _values_like(tensor: Tensor, sizes: dict[int, int], generator: torch.Generator) -> Tensor:
    """Integers from the smallest to the largest; numbers of both signs; of masks the values they have."""
    if tensor.layout != torch.strided:
        return tensor  # of the same values and sizes
    shape = [sizes.get(size, size) for size in tensor.shape]
    flat = tensor.detach().flatten().cpu()
    if not flat.numel():
        return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    if tensor.is_floating_point() and bool(flat.isfinite().all()) and len(flat.unique()) > 2:  # pyright: ignore
        size = float(flat.double().square().mean().sqrt())
        new = size * torch.randn(shape, generator=generator, dtype=torch.float64)
    elif tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        new = flat[torch.randint(flat.numel(), shape, generator=generator)]
    else:
        new = torch.randint(int(flat.min()), int(flat.max()) + 1, shape, generator=generator)
    return new.to(tensor.device, tensor.dtype)

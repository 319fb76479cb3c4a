"""Other calls than the example: of other values and of other lengths."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from symoptim.symmetry.exact import Arguments
from symoptim.symmetry.tensors import on_cpu


class Drawn(NamedTuple):
    """A call, and in words how it differs from the example."""

    what: str
    arguments: Arguments
    given: bool = False
    """Whether the user gave it."""


@on_cpu
def other_calls(arguments: Arguments, *, lengths: bool = True) -> list[Drawn]:
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
    found = [Drawn("other values", _with(arguments, {}, generator))]
    if lengths:
        sizes = dict.fromkeys(size for one in tensors for size in one.shape if size > 1)
        found += [
            Drawn(f"length {new} for {old}", _with(arguments, {old: new}, generator))
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


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = (one.device, one.dtype) == (other.device, other.dtype)
        return one is other or (alike and torch.equal(one, other))
    plain = type(one) is type(other) and isinstance(one, int | float | str)
    return one is other or (plain and one == other)


def _with(arguments: Arguments, sizes: dict[int, int], generator: torch.Generator) -> Arguments:
    def drawn(value: Any) -> Any:
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

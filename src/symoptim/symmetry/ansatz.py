"""What each entry of a parameter may scale by, before any equation is written.

    element      an unknown for every entry: exact, and slow; tests compare with it
    separable    an unknown for every row plus one for every index of each other axis

Separable is enough wherever a parameter is used as a map between axes; small parameters that
features are only multiplied with, entry by entry, have an unknown for each. Rows that are cut apart (groups,
fused projections) have columns of their own; a stack of matrices has rows and columns for each. Index 0 of
every axis but the first is fixed, so that different unknowns mean different scales.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from symoptim.symmetry.form import FIXED, Form
from symoptim.symmetry.graph import Leaf, Operation
from symoptim.symmetry.system import System

Ansatz = Literal["separable", "element"]
CONVOLUTIONS = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), 6),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 6),
    **dict.fromkeys(("convolution", "_convolution"), 8),
}
"""Convolutions, and the position of their number of groups."""

LARGEST_BY_ENTRY = 4096
"""Entries of a parameter that may have an unknown each."""


def leaf_form(system: System, users: list[Operation], leaf: Leaf, ansatz: Ansatz) -> Form:
    """Unknowns of a parameter or a buffer.

    Args:
        system: gets the unknowns.
        users: operations that take the leaf.
        leaf: the parameter.
        ansatz: how general it may scale.

    Returns:
        Its form.
    """
    shape = tuple(leaf.tensor.shape)
    if not leaf.tensor.numel():
        return Form(shape)
    if ansatz == "element" or len(shape) < 2:
        return Form(shape, (system.fresh(*shape),))
    small = leaf.kind == "parameter" and leaf.tensor.numel() <= LARGEST_BY_ENTRY
    if small and all(user.name == "mul" for user in users):
        return Form(shape, (system.fresh(*shape),))
    if len(shape) == 3 and not any(user.name in CONVOLUTIONS for user in users):
        return _stack_of_matrices(system, shape)
    return _rows_and_columns(system, shape, _blocks(shape[0], users))


def _stack_of_matrices(system: System, shape: tuple[int, ...]) -> Form:
    stack, rows, columns = shape
    first = torch.full((stack, 1, 1), FIXED)
    across = torch.cat([first, system.fresh(stack, 1, columns - 1)], dim=2)
    return Form(shape, (system.fresh(stack, rows, 1), across))


def _rows_and_columns(system: System, shape: tuple[int, ...], block: Tensor) -> Form:
    axes = len(shape)
    terms = [system.fresh(shape[0], *[1] * (axes - 1))]
    for axis in range(1, axes):
        if shape[axis] > 1:
            count = int(block.max()) + 1
            first = torch.full((count, 1), FIXED)
            ids = torch.cat([first, system.fresh(count, shape[axis] - 1)], dim=1)
            placed = [shape[0] if count > 1 else 1] + [1] * (axes - 1)
            placed[axis] = shape[axis]
            terms.append((ids[block] if count > 1 else ids).reshape(placed))
    return Form(shape, tuple(terms))


def _blocks(rows: int, users: list[Operation]) -> Tensor:
    """For every row the number of the block it is in: rows of different blocks meet different inputs."""
    block = torch.zeros(rows, dtype=torch.int64)
    for cut in sorted({cut for user in users for cut in _cuts(user, rows)}):
        block[cut:] += 1
    return block


def _cuts(user: Operation, rows: int) -> Iterator[int]:
    """Rows at which an operation cuts its argument."""
    cut: Callable[[int], bool] = lambda row: 0 < row < rows  # noqa: E731
    arguments = user.arguments
    if user.name in CONVOLUTIONS:
        position = CONVOLUTIONS[user.name]
        groups = arguments[position] if len(arguments) > position else user.keywords.get("groups", 1)
        yield from filter(cut, range(0, rows, rows // groups) if rows >= groups > 1 else ())
    elif user.name == "slice" and (len(arguments) < 2 or arguments[1] == 0):
        yield from filter(cut, (bound for bound in arguments[2:4] if isinstance(bound, int)))
    elif user.name in ("split_with_sizes", "split", "chunk") and (len(arguments) < 3 or arguments[2] == 0):
        sizes = [part.shape[0] for part in user.result]
        yield from filter(cut, itertools.accumulate(sizes))

"""Operations that move elements about: the very operation is run on the ids.

Some take a part of a tensor, some put several together; which elements these are is known here too.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from symoptim.symmetry.ansatz import CONVOLUTIONS
from symoptim.symmetry.form import Form
from symoptim.symmetry.graph import Operation
from symoptim.symmetry.rules.pointwise import COPIES
from symoptim.symmetry.rules.registry import CannotTell, Context, Result, rule
from symoptim.symmetry.system import move
from symoptim.symmetry.tensors import aligned

# Not as_strided: ids have other strides than the elements they stand for.
WHOLE = (
    "permute transpose t unsqueeze squeeze expand slice select diagonal unfold flip roll repeat "
    "repeat_interleave movedim narrow pixel_shuffle pixel_unshuffle channel_shuffle flatten unflatten "
    "swapaxes tile numpy_T mT mH broadcast_to"
).split()
PARTS = ("split", "split_with_sizes", "unbind", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk")


@rule(*WHOLE, sees_deferred=True)
def _whole(context: Context, form: Form, *arguments: object, **keywords: object) -> Result:
    return move(form, lambda ids: context.operation.function(ids, *arguments, **keywords))


@rule("view", "_unsafe_view", "reshape", sees_deferred=True)
def _view(context: Context, form: Form, *arguments: object, **_: object) -> Result:
    if any(isinstance(argument, torch.dtype) for argument in arguments):
        raise CannotTell  # the same bits read as numbers of another type
    # Ids are broadcast, so that a view of them may need a copy.
    return move(form, lambda ids: ids.reshape(context.shape))


@rule(*PARTS, sees_deferred=True)
def _parts(context: Context, form: Form, *arguments: object, **keywords: object) -> Result:
    def part(number: int) -> Form:
        def take(ids: Tensor) -> Tensor:
            return context.operation.function(ids, *arguments, **keywords)[number]

        return move(form, take)

    return tuple(part(number) for number in range(len(context.operation.result)))


LOOKED_UP = ("index", "_unsafe_index", "index_select", "embedding", "gather", "take_along_dim")
TAKEN_BY_AXIS = {
    **dict.fromkeys(("slice", "select", "narrow", "index_select", "gather", "unbind"), 1),
    "take_along_dim": 2,
    **dict.fromkeys(
        ("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk"), 2
    ),
}
"""Operations that take a part along one axis, and the position of that axis among their arguments."""
PARTIAL = frozenset((*TAKEN_BY_AXIS, *LOOKED_UP, "diagonal", "unfold"))
"""Operations that may leave places of what they take unread."""
LISTS = ("cat", "concat", "concatenate", "stack")
JOINS = {
    **dict.fromkeys(("constant_pad_nd", "pad", *LISTS), 1),
    **dict.fromkeys(("slice_scatter", "select_scatter", "diagonal_scatter", "copy"), 2),
}
"""Operations that put elements of that many arguments beside or over each other, or beside constants."""
MOVES = frozenset((*WHOLE, *PARTS, *LOOKED_UP, *COPIES, "view", "_unsafe_view", "reshape"))


def results_of(operation: Operation) -> int:
    """Number of tensors an operation returns."""
    result: Any = operation.result
    return len(cast("Sequence[Any]", result)) if isinstance(result, list | tuple) else 1


def axes_of(operation: Operation) -> list[int]:
    """Axes along which an operation takes a part; none if that is no matter of single axes."""
    if operation.name == "embedding":
        return [0]
    if operation.name in ("index", "_unsafe_index"):
        return [axis for axis, place in enumerate(operation.arguments[1]) if place is not None]
    if operation.name not in TAKEN_BY_AXIS:
        return []
    position = TAKEN_BY_AXIS[operation.name]
    given = operation.arguments[position] if len(operation.arguments) > position else 0
    return [operation.keywords.get("dim", given)]


def cut(numbers: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Parts of a vector, one behind the other, of these shapes.

    >>> cut(torch.arange(4), [(1, 2), (1,)])
    [tensor([[0, 1]]), tensor([2])]
    """
    ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))
    starts = [0, *ends]
    return [
        numbers[start:end].reshape(tuple(shape))
        for start, end, shape in zip(starts, ends, shapes, strict=False)
    ]


def together(operation: Operation, numbers: Sequence[Tensor]) -> Tensor:
    """Where elements of these numbers go; -1 is whatever comes from elsewhere."""
    if operation.name in LISTS:
        return operation.function(list(numbers), *operation.arguments[1:], **operation.keywords)
    rest = operation.arguments[len(numbers) :]
    if operation.name in ("constant_pad_nd", "pad"):
        return torch.nn.functional.pad(numbers[0], list(rest[0]), value=-1)
    if operation.name == "copy":
        return numbers[1].expand(tuple(operation.result.shape))
    return operation.function(*numbers, *rest, **operation.keywords)


def axes_of_joining(operation: Operation) -> list[int]:
    """Axes along which something is put over something else, or cut off."""
    if operation.name in ("constant_pad_nd", "pad"):
        amounts = operation.arguments[1]
        return [-1 - place // 2 for place, amount in enumerate(amounts) if amount < 0]
    if operation.name in ("slice_scatter", "select_scatter"):
        given = operation.arguments[2] if len(operation.arguments) > 2 else 0
        return [operation.keywords.get("dim", given)]
    return []


def channels_met(operation: Operation, zero: Tensor, shape: Sequence[int]) -> Tensor:
    """Places of a convolution's weight that meet channels which are not zero throughout."""
    position, spatial = CONVOLUTIONS[operation.name], len(shape) - 2
    arguments = operation.arguments
    given = arguments[position] if len(arguments) > position else 1
    groups = operation.keywords.get("groups", given)
    transposed = "transpose" in operation.name or (position == 8 and arguments[6])
    one_of_batch = aligned(~zero, spatial + 2)  # the batch may be left out
    channels = one_of_batch.movedim(1, 0).flatten(1).any(dim=1)
    if transposed:
        return channels.reshape(-1, *[1] * (spatial + 1))
    rows = (
        channels.expand(groups * shape[1]).reshape(groups, shape[1]).repeat_interleave(shape[0] // groups, 0)
    )
    return rows.reshape(shape[0], shape[1], *[1] * spatial)


def spread_over(there: Tensor, shape: Sequence[int]) -> Tensor:
    """Places of a factor of that shape which meet places of the other one, with broadcasting."""
    if there.dim() > len(shape):
        there = there.flatten(0, there.dim() - len(shape)).any(dim=0) if shape else there.any()
    there = aligned(there, len(shape))
    for axis, size in enumerate(shape):
        there = there.any(dim=axis, keepdim=True) if size == 1 else there
    return there


def along(there: Tensor, axes: tuple[int, int], count: int) -> Tensor:
    """The same of a matrix product, which sums over an axis of each of them: of one, and of the other."""
    mine, others = axes
    met = there.movedim(others, -1).reshape(-1, there.shape[others]).any(dim=0)
    return met.reshape([-1 if axis == count + mine else 1 for axis in range(count)])

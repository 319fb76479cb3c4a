"""Operations that only move elements about: the very operation is run on the ids."""

from typing import Any

import torch
from torch import Tensor

from symoptim.symmetry.form import Form
from symoptim.symmetry.rules.registry import CannotTell, Context, Result, rule
from symoptim.symmetry.system import move

# Not as_strided: ids have other strides than the elements they stand for.
WHOLE = (
    "permute transpose t unsqueeze squeeze expand slice select diagonal unfold flip roll repeat "
    "repeat_interleave movedim narrow pixel_shuffle pixel_unshuffle channel_shuffle flatten unflatten "
    "swapaxes tile numpy_T mT mH broadcast_to"
).split()
PARTS = ("split", "split_with_sizes", "unbind", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk")

MOVES = frozenset((*WHOLE, *PARTS, "view", "_unsafe_view", "reshape", "getitem"))


@rule(*WHOLE, sees_deferred=True)
def _whole(context: Context, form: Form, *arguments: Any, **keywords: Any) -> Result:
    return move(form, lambda ids: context.operation.function(ids, *arguments, **keywords))


@rule("view", "_unsafe_view", "reshape", sees_deferred=True)
def _view(context: Context, form: Form, *arguments: Any, **_: Any) -> Result:
    if any(isinstance(argument, torch.dtype) for argument in arguments):
        raise CannotTell  # the same bits read as numbers of another type
    # Ids are broadcast, so that a view of them may need a copy.
    return move(form, lambda ids: ids.reshape(context.shape))


@rule(*PARTS, sees_deferred=True)
def _parts(context: Context, form: Form, *arguments: Any, **keywords: Any) -> Result:
    def part(number: int) -> Form:
        def take(ids: Tensor) -> Tensor:
            return context.operation.function(ids, *arguments, **keywords)[number]

        return move(form, take)

    return tuple(part(number) for number in range(len(context.operation.result)))

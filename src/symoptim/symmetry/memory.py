"""Tensors of a model that share memory: to scale one of them would scale the other, so neither may."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, UntypedStorage

from symoptim.symmetry.constants import has_plain_sizes


class _Piece(NamedTuple):
    """Bytes of a memory that a tensor reaches over."""

    memory: tuple[str, int]
    start: int
    end: int
    tensor: int


def sharing(tensors: Iterable[Tensor], others: Iterable[Tensor] = ()) -> set[int]:
    """Ids of tensors that overlap with another one, or in themselves.

    Args:
        tensors: of the model; one that is there twice is one.
        others: that overlap with these even if they are the very same, such as a weight that is also reached
            through a closure, a list, or an attribute.

    Returns:
        Their ids.

    >>> import torch
    >>> rows = torch.zeros(4, 2)
    >>> len(sharing([rows[:2], rows[2:], torch.zeros(1)])), len(sharing([rows[:3], rows[2:]]))
    (0, 2)
    >>> len(sharing([torch.zeros(1).expand(3)]))
    1
    >>> len(sharing([rows, rows])), len(sharing([rows], [rows.t()])), len(sharing([rows], [rows]))
    (0, 2, 1)
    """
    different = [
        *{id(tensor): tensor for tensor in tensors}.values(),
        *{id(tensor): tensor for tensor in others}.values(),
    ]
    different = [tensor for tensor in different if has_plain_sizes(tensor) and tensor.numel()]
    storages = [tensor.untyped_storage() for tensor in different]  # kept, so that their ids last
    found = {id(tensor) for tensor in different if _reach(tensor) < tensor.numel()}
    pieces = sorted(map(_piece, different, storages))
    furthest: _Piece | None = None
    for piece in pieces:
        same_memory = furthest is not None and piece.memory == furthest.memory
        if furthest is not None and same_memory and piece.start < furthest.end:
            found |= {piece.tensor, furthest.tensor}
        if furthest is None or not same_memory or piece.end > furthest.end:
            furthest = piece
    return found


def _reach(tensor: Tensor) -> int:
    return 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _piece(tensor: Tensor, storage: UntypedStorage) -> _Piece:
    """Bytes by their address, which memory that came by way of NumPy has in common, too."""
    base = storage.data_ptr()
    memory = (str(tensor.device), 0 if base else id(storage))  # the meta device has no addresses
    start = base + int(tensor.storage_offset()) * tensor.itemsize
    return _Piece(memory, start, start + _reach(tensor) * tensor.itemsize, id(tensor))

"""Tensors of a model that share memory: to scale one of them would scale the other, so neither may."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor


class _Piece(NamedTuple):
    """Bytes of a storage that a tensor reaches over."""

    storage: int
    start: int
    end: int
    tensor: int


def sharing(tensors: Iterable[Tensor]) -> set[int]:
    """Ids of tensors that overlap with another one, or in themselves.

    >>> import torch
    >>> rows = torch.zeros(4, 2)
    >>> len(sharing([rows[:2], rows[2:], torch.zeros(1)])), len(sharing([rows[:3], rows[2:]]))
    (0, 2)
    >>> len(sharing([torch.zeros(1).expand(3)]))
    1
    """
    different = {id(tensor): tensor for tensor in tensors if tensor.numel()}
    storages = {key: tensor.untyped_storage() for key, tensor in different.items()}  # kept, so that ids last
    found: set[int] = set()
    pieces: list[_Piece] = []
    for key, tensor in different.items():
        reach = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        if reach < tensor.numel():
            found.add(key)
        start = int(tensor.storage_offset()) * tensor.itemsize
        pieces.append(_Piece(id(storages[key]), start, start + reach * tensor.itemsize, key))
    furthest: _Piece | None = None
    for piece in sorted(pieces):
        same_storage = furthest is not None and piece.storage == furthest.storage
        if furthest is not None and same_storage and piece.start < furthest.end:
            found |= {piece.tensor, furthest.tensor}
        if furthest is None or not same_storage or piece.end > furthest.end:
            furthest = piece
    return found

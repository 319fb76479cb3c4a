"""Tensors of a model that share memory: to scale one of them would scale the other, so neither may."""

import ctypes
import sys
import types
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, TypedStorage, UntypedStorage, nn

from symoptim.symmetry.graph import has_plain_sizes
from symoptim.symmetry.objects import DEPTH, inside, walk
from symoptim.symmetry.tensors import model_tensors


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
    different = [part for tensor in different for part in _dense(tensor)]
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


def address(tensor: Tensor) -> int:
    """Where the memory of a tensor begins; a number of its own if it has none, or not a single one."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (NotImplementedError, RuntimeError, ValueError):  # it is sparse, or has no shape yet
        return id(tensor)


def _dense(tensor: Tensor) -> list[Tensor]:
    """A tensor that has a memory; none of one that is sparse, whose values torch does not name alike."""
    return [tensor] if tensor.layout == torch.strided else []


def reached_otherwise(model: nn.Module) -> list[Tensor]:
    """The memory of NumPy arrays, buffers and storages that attributes of a model lead to, as bytes.

    Whatever is made of them during a pass is a constant there, though they may share memory with a weight.

    >>> model = nn.Linear(2, 3)
    >>> model.array = model.weight.detach().numpy()
    >>> len(reached_otherwise(model)), len(sharing([model.weight], reached_otherwise(model)))
    (1, 2)
    """
    return [_bytes_at(*place) for place in dict.fromkeys(map(_place, foreign(model))) if place[1]]


def foreign(model: nn.Module) -> Iterator[Any]:
    """NumPy arrays, buffers and storages that attributes of a model's modules lead to."""
    return (one for one in _attributes_of(model) if not _is(one, Tensor))


def reached_twice(model: nn.Module) -> list[Tensor]:
    """The model's tensors whose memory attributes of its modules lead to: an array, a list, a view."""
    tensors, others = list(model_tensors(model).values()), list(_attributes_of(model))
    addresses = {address(one) for one in others if _is(one, Tensor)}
    arrays = [one for one in others if not _is(one, Tensor)]
    return [one for one in tensors if address(one) in addresses or any(shares(a, [one]) for a in arrays)]


OWN = ("_parameters", "_buffers", "_modules")
"""Attributes of a module by which torch knows what is in it."""


def _attributes_of(model: nn.Module) -> Iterator[Any]:
    """Tensors, NumPy arrays, buffers and storages that other attributes of a model's modules lead to."""
    attributes = (vars(module).items() for module in model.modules())
    roots = [
        one for items in attributes for name, one in items if name not in OWN and not _leads_nowhere(one)
    ]
    return filter(_has_memory, walk(roots, _parts, DEPTH))


def _has_memory(value: object) -> bool:
    return _is(value, Tensor | UntypedStorage | TypedStorage | memoryview) or _is_array(value)


def _parts(value: object) -> list[Any]:
    """What a value leads to; nothing where it has a memory of its own."""
    if _has_memory(value):
        return []
    try:
        return [one for one in inside(value) if not _leads_nowhere(one)]
    except Exception:  # objects of others may refuse to be looked into, in any way
        return []


def _leads_nowhere(value: object) -> bool:
    if _is(value, nn.Module | type | types.ModuleType | str | bytes | int | float | None):
        return True
    return type(value) in (dict, OrderedDict, list, tuple, set) and not value


def _is(value: Any, kinds: Any) -> bool:
    """Whether it is of some class by its type: an object of others may say, or raise, anything if asked."""
    return issubclass(type(value), kinds)


def shares(value: object, tensors: Iterable[Tensor]) -> bool:
    """Whether an array, a buffer or a storage lies in the memory of tensors."""
    start, count = _place(value)
    for tensor in tensors:
        for part in _dense(tensor):
            memory = part.untyped_storage()
            if memory.data_ptr() < start + count and start < memory.data_ptr() + memory.nbytes():
                return True
    return False


def _is_array(value: object) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and _is(value, numpy.ndarray)


def _place(value: Any) -> tuple[int, int]:
    """Address and number of bytes of what is no tensor; of parts of an array those of all of it."""
    if isinstance(value, TypedStorage):
        value = value.untyped()
    if isinstance(value, UntypedStorage):
        return (value.data_ptr(), value.nbytes()) if value.device.type == "cpu" else (0, 0)
    if isinstance(value, memoryview):
        numpy: Any = sys.modules.get("numpy")
        if numpy is None or not value.contiguous or not value.nbytes:
            return 0, 0  # without numpy there is no memory of others to come from
        value = numpy.frombuffer(value.cast("B"), numpy.uint8)
    while _is_array(value.base):
        value = value.base
    return value.__array_interface__["data"][0], value.nbytes


def _bytes_at(start: int, count: int) -> Tensor:
    there = (ctypes.c_uint8 * count).from_address(start)
    return torch.frombuffer(there, dtype=torch.uint8)


def _reach(tensor: Tensor) -> int:
    return 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _piece(tensor: Tensor, storage: UntypedStorage) -> _Piece:
    """Bytes by their address, which memory that came by way of NumPy has in common, too."""
    base = storage.data_ptr()
    memory = (str(tensor.device), 0 if base else id(storage))  # the meta device has no addresses
    start = base + int(tensor.storage_offset()) * tensor.itemsize
    return _Piece(memory, start, start + _reach(tensor) * tensor.itemsize, id(tensor))

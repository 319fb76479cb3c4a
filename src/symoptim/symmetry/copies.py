"""Copies of a model, with Python state of their own, in which tensors that share memory still share it.

``copy.deepcopy`` takes shared parameters apart from their views, refuses tensors that autograd made, and does
not enter closures. In a copy that is acted on in place, a second way to a weight (a view, a list of
parameters, a closure) must lead to the copied weight, as it does in the model.
"""

import copy
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.overrides import TorchFunctionMode

from symoptim.symmetry.memory import address, foreign, shares
from symoptim.symmetry.objects import walk
from symoptim.symmetry.tensors import model_tensors


class _SharedTensors(TorchFunctionMode):
    """Copies share parameters, buffers and whatever lies in their memory; other tensors are copied."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.memory = {address(tensor) for tensor in model_tensors(model).values()}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not cast("Any", Tensor).__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor = cast("Tensor", args[0])
        return tensor if address(tensor) in self.memory else tensor.detach().clone()


def isolated(model: nn.Module) -> nn.Module:
    """A model with the same tensors and Python state of its own.

    What cannot be copied, such as a lock or an open file, is shared. Arrays may be views of tensors, and are
    shared, too, if they are.

    >>> model = nn.Linear(2, 2)
    >>> isolated(model) is model, isolated(model).weight is model.weight
    (False, True)
    """
    tensors = list(model_tensors(model).values())
    memo: dict[int, Any] = {id(tensor): tensor for tensor in tensors}
    for other in foreign(model):
        if shares(other, tensors):
            memo[id(other)] = other
    with _SharedTensors(model):
        return copied_with(model, memo)


def copied_with(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """A deep copy of a model, with whatever is in ``memo``; what cannot be copied is shared."""
    tried = dict(memo)
    try:
        found = copy.deepcopy(model, tried)
    except Exception:  # one of its attributes, for whatever reason, or of theirs
        return _by_modules(model, memo)
    memo.update(tried)
    return found


def _by_modules(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """The same, module by module and attribute by attribute."""
    modules = list(model.modules())
    for module in modules:
        memo[id(module)] = object.__new__(type(module))
    for module in modules:
        _fill(memo[id(module)], module, memo)
    return memo[id(model)]


def _fill(new: object, old: object, memo: dict[int, Any]) -> None:
    """Give an object the attributes of another, copied."""
    attributes = vars(old)
    vars(new).update({name: _copy_of_value(one, memo) for name, one in attributes.items()})


def _copy_of_value(value: object, memo: dict[int, Any]) -> Any:
    """A deep copy, of which those parts are shared that cannot be copied."""
    tried = dict(memo)
    try:
        found = copy.deepcopy(value, tried)
    except Exception:  # a part of it, for whatever reason
        return _copy_of_parts(value, memo)
    memo.update(tried)
    return found


def _copy_of_parts(value: Any, memo: dict[int, Any]) -> Any:
    """A copy of a collection or an object, of which each part is copied, if it can be."""
    found: Any
    kind = cast("Any", type)(value)
    if issubclass(kind, dict):
        found = memo[id(value)] = copy.copy(value)
        found.update({name: _copy_of_value(one, memo) for name, one in found.items()})
    elif kind in (list, tuple, set):
        found = cast("Any", kind)(_copy_of_value(one, memo) for one in value)
    elif not issubclass(kind, type | types.ModuleType):
        try:
            found = memo[id(value)] = copy.copy(value)
            _fill(found, value, memo)
        except Exception:  # it has no attributes, or refuses to show them, or to be copied
            found = value
    else:
        found = value
    memo[id(value)] = found
    return found


WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
"""Types of numbers, and those that trials are made in."""


def copied(model: nn.Module, *, wide: bool) -> nn.Module:
    """A deep copy; ``wide`` makes it of float64.

    Args:
        model: is left as it is.
        wide: whether tensors are to be of float64, or of the types they have.

    Returns:
        The copy.

    >>> model = nn.Linear(2, 2)
    >>> model.transposed = model.weight.t()  # not a leaf: copy.deepcopy refuses it
    >>> other = copied(model, wide=True)
    >>> other.weight.dtype, other.transposed.data_ptr() == other.weight.data_ptr()
    (torch.float64, True)
    """
    memo: dict[int, Any] = {}
    whole: dict[tuple[int, torch.dtype], Tensor] = {}
    functions: list[tuple[types.FunctionType, types.FunctionType]] = []
    with torch.no_grad():
        for value in _reachable(model):
            if isinstance(value, Tensor):
                new = _copy_of(value, whole, wide=wide)
            else:
                new = _with_own_cells(value)
                functions.append((value, new))
            memo[id(value)] = new
    other = copied_with(model, memo)
    for old, new in functions:
        pairs = zip(old.__closure__ or (), new.__closure__ or (), strict=True)
        for cell, own in pairs:
            own.cell_contents = (
                copy.deepcopy(cell.cell_contents, memo) if _has_tensors(cell) else _content(cell)
            )
    return other.double() if wide else other


def keeps_closures(model: nn.Module) -> bool:
    """Whether attributes of a model's modules lead to functions with tensors in their closures."""
    return any(isinstance(one, types.FunctionType) for one in _reachable(model))


def _reachable(model: nn.Module) -> Iterator[Any]:
    """Tensors, and functions with tensors in their closures, that attributes of a model's modules lead to."""
    for value in walk([model], _parts):
        if isinstance(value, Tensor):
            if type(value) in (Tensor, nn.Parameter) and value.layout == torch.strided:
                yield value
        elif isinstance(value, types.FunctionType) and _cells_of(value):
            yield value


def _cells_of(function: types.FunctionType) -> list[types.CellType]:
    """Variables of a closure that hold tensors, or something with tensors in it."""
    return [cell for cell in function.__closure__ or () if _has_tensors(cell)]


def _parts(value: object) -> list[Any]:
    """What a module, a collection, a method or a partial function holds."""
    if isinstance(value, nn.Module):
        return list(vars(value).values())
    if isinstance(value, Mapping):
        return list(cast("Mapping[Any, Any]", value).values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(cast("list[Any]", value))
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]  # pyright: ignore[reportUnknownMemberType]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.FunctionType):
        return [cell.cell_contents for cell in _cells_of(value)]
    if isinstance(value, Tensor | types.ModuleType | type | str | bytes | int | float):
        return []
    return list(getattr(value, "__dict__", {}).values())


def _has_tensors(cell: types.CellType) -> bool:
    """Whether a variable of a closure is a tensor, a module, or a collection that has some."""
    value = _content(cell)
    holds = isinstance(value, Mapping | list | tuple | set | functools.partial)
    parts: list[Any] = _parts(cast("Any", value)) if holds else []
    return any(isinstance(one, Tensor | nn.Module | types.FunctionType) for one in [value, *parts])


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _with_own_cells(function: types.FunctionType) -> types.FunctionType:
    """The same function with variables of its own, not assigned yet."""
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    new = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    new.__kwdefaults__ = function.__kwdefaults__
    return new


def _copy_of(tensor: Tensor, whole: dict[tuple[int, torch.dtype], Tensor], *, wide: bool) -> Tensor:
    """A tensor in the copy of the memory it is in."""
    if isinstance(tensor, UninitializedParameter):
        return tensor
    if tensor.device.type == "meta" or not tensor.numel():
        new = tensor.detach().clone()
        new = new.to(WIDER.get(tensor.dtype, tensor.dtype)) if wide else new
    else:
        key = (tensor.untyped_storage().data_ptr(), tensor.dtype)
        if key not in whole:
            whole[key] = _memory(tensor, wide=wide)
        new = whole[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(new, tensor.requires_grad)
    return new


def _memory(tensor: Tensor, *, wide: bool) -> Tensor:
    """All that is in a tensor's memory, as a vector, copied."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    vector = tensor.detach().as_strided((size,), (1,), 0)
    return (
        vector.to(WIDER.get(tensor.dtype, tensor.dtype)) if wide and tensor.dtype in WIDER else vector.clone()
    )

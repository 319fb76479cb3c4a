"""Attributes of a model's modules that are no tensors: state of Python that changes from call to call.

They may lead to anything, such as a data set or objects of others, so no more is looked into than a number of
values that grows with the number of modules; what is nearest to the modules and smallest comes first.
"""

import random
import sys
from array import array
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Number
from types import GeneratorType, ModuleType
from typing import Any, NamedTuple, TypeVar, cast

from torch import Tensor, nn

from symoptim.symmetry.objects import inside

MOST, PER_MODULE = 10_000, 100
"""Values that are looked at: of a model, and more for each of its modules."""
BYTES = 1_000  # of an array, that count as one value
HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
"""Attributes with functions that a module runs before and after its own: they may keep something, too."""
OWN = frozenset(vars(nn.Module())) - {"training", *HOOKS}
"""Attributes that torch gives to every module."""
PLAIN = ("builtins", "itertools")
"""Modules whose iterators say where they are when they are copied."""


@dataclass(slots=True, eq=False)
class _Value:
    """What is known of a value that has parts."""

    value: Any
    state: tuple[Any, ...] = ()
    """Of itself, such as its class, or where an iterator is."""
    parts: tuple[Any, ...] = ()
    """More of these, or what has no parts and can be compared."""


class Attributes(NamedTuple):
    """What modules have at some time, by their names, in a form that can be compared later."""

    values: dict[str, _Value]
    looked_at: int
    """How many values."""
    too_large: frozenset[str]
    """Modules with attributes that have too many parts to be compared."""


def changing(before: Attributes, after: Attributes) -> set[str]:
    """Modules whose attributes are others than before.

    >>> model = nn.Sequential(nn.ReLU())
    >>> model[0].calls = [1]
    >>> before = attributes_of(model)
    >>> model[0].calls.append(2)
    >>> changing(before, attributes_of(model))
    {'0'}
    """
    pairs = {name: (before.values[name], one) for name, one in after.values.items() if name in before.values}
    others = _others(pairs.values())
    return {name for name in after.values if name not in pairs or pairs[name] in others}


def attributes_of(model: nn.Module) -> Attributes:
    """Attributes of all modules.

    A tensor that takes the place of another is no change: a pass that reads it takes it for a constant. To
    write into one is. Of what has too many parts only the number of these is known.
    """
    modules = dict(cast("Iterable[tuple[str, nn.Module]]", model.named_modules()))
    reader = _Reader(MOST + PER_MODULE * len(modules))
    values: dict[str, _Value] = {}
    for name, module in modules.items():
        values[name] = reader.note({key: one for key, one in vars(module).items() if key not in OWN})
    reader.read()
    parts = {one: [part for part in one.parts if isinstance(part, _Value)] for one in reader.read_ones}
    large = _leading_to(parts, reader.too_large)
    return Attributes(
        values, reader.looked_at, frozenset(name for name, one in values.items() if one in large)
    )


class _Reader:
    """Looks into values, and into their parts only after all of these, each once."""

    def __init__(self, most: int) -> None:
        self.most, self.looked_at = most, 0
        self.noted: dict[int, _Value] = {}
        self.waiting: list[_Value] = []
        self.read_ones: list[_Value] = []
        self.too_large: set[_Value] = set()

    def note(self, value: object) -> _Value:
        """A place for what is to be known of a value."""
        if id(value) not in self.noted:
            self.noted[id(value)] = _Value(value)
            self.waiting.append(self.noted[id(value)])
        return self.noted[id(value)]

    def read(self) -> None:
        """Look at all that is noted, and at what it leads to."""
        while self.waiting:
            level, self.waiting = sorted(self.waiting, key=lambda one: _size(one.value)), []
            for one in level:
                self._look_at(one)
            self.read_ones += level

    def _look_at(self, one: _Value) -> None:
        kind, size = type(one.value).__name__, _size(one.value)
        parts: list[Any] = []
        if self._has_room(size):
            one.state, parts = _opened(one.value)
            size = max(size, len(parts))
        if self._has_room(size):
            self.looked_at += size
            one.parts = tuple(map(self._part, parts))
        else:
            self.too_large.add(one)
            one.state = kind, size

    def _has_room(self, size: int) -> bool:
        return self.looked_at + size <= self.most

    def _part(self, value: Any) -> Any:
        kind = cast("Any", type)(value)  # not isinstance: objects of others may say anything of their class
        if issubclass(kind, bool | str | bytes | Number | None):
            return value
        if issubclass(kind, Tensor):
            return "a tensor" if value.is_inference() else _Version(value)
        return kind.__name__ if issubclass(kind, nn.Module | ModuleType | type) else self.note(value)


def _size(value: Any) -> int:
    """How many parts there are, as far as that can be told without a look at them."""
    try:
        if issubclass(type(value), dict | list | tuple | set | frozenset | deque):
            return len(value)
        return _bytes_of(value) // BYTES
    except Exception:  # objects of others may refuse to be looked into, in any way
        return 0


def _bytes_of(value: Any) -> int:
    if issubclass(type(value), bytearray | memoryview | array):
        return memoryview(value).nbytes
    return value.nbytes if _is_of_numpy(value, "ndarray") else 0


def _opened(value: object) -> tuple[tuple[Any, ...], list[Any]]:
    """What is known of a value itself, and its parts; not more than its class if it cannot be looked into."""
    kind = type(value).__name__
    try:
        state, parts = _state_and_parts(value)
    except Exception:  # the look-up of an attribute may raise whatever somebody has written
        return (kind,), []
    return (kind, *state), parts


def _state_and_parts(value: Any) -> tuple[tuple[Any, ...], list[Any]]:
    kind = cast("Any", type)(value)
    if issubclass(kind, bytearray | memoryview | array):
        return (bytes(value),), []
    if issubclass(kind, random.Random):
        return value.getstate(), []
    if _is_of_numpy(value, "random.Generator"):
        return (str(value.bit_generator.state),), []
    if _is_of_numpy(value, "random.RandomState"):
        return (str(value.get_state()),), []
    if _is_of_numpy(value, "ndarray"):
        return (value.shape, value.tobytes()), [*value.flat] if value.dtype.hasobject else []
    if issubclass(kind, range | slice):
        return (repr(value),), []
    if issubclass(kind, deque):
        return (), [*value]
    names = tuple(map(str, value)) if issubclass(kind, Mapping) else ()
    return names, [*inside(value), *_left_of(value)]


def _is_of_numpy(value: object, name: str) -> bool:
    """Whether it is of a class of NumPy's; nothing is, if nobody has imported that."""
    found: Any = sys.modules.get("numpy")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is not None and issubclass(type(value), found)


def _left_of(value: object) -> Iterable[Any]:
    """Where an iterator is; nothing is taken from it."""
    if isinstance(value, GeneratorType):
        frame = cast("GeneratorType[Any, Any, Any]", value).gi_frame
        return () if frame is None else (frame.f_lasti, dict(frame.f_locals))
    if not isinstance(value, Iterator) or type(cast("object", value)).__module__ not in PLAIN:
        return ()
    try:
        parts: Any = cast("Any", value).__reduce__()  # how it would be copied
    except TypeError:  # later versions of Python do not tell
        return ()
    return cast("tuple[Any, ...]", parts)[1:] if isinstance(parts, tuple) else ()


class _Version:
    """A tensor at some time; another tensor is equal to it, but the same one only if nothing was written."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version = tensor, tensor._version

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Version):
            return False
        return self.tensor is not other.tensor or self.version == other.version

    __hash__ = None  # pyright: ignore[reportAssignmentType]


Pair = tuple[_Value, _Value]
T = TypeVar("T", bound=Hashable)


def _others(pairs: Iterable[Pair]) -> set[Pair]:
    """Those pairs of values that differ, or have parts that do."""
    waiting, different = list(pairs), set[Pair]()
    parts: dict[Pair, list[Pair]] = {}
    while waiting:
        pair = waiting.pop()
        if pair in parts:
            continue
        before, after = pair
        inner = list(zip(before.parts, after.parts, strict=False))
        parts[pair] = [(one, other) for one, other in inner if _is_pair(one, other)]
        waiting += parts[pair]
        alike = all(_is_pair(*both) or _equal(*both) for both in inner)
        if not (alike and len(before.parts) == len(after.parts) and _equal(before.state, after.state)):
            different.add(pair)
    return _leading_to(parts, different)


def _is_pair(one: object, other: object) -> bool:
    return isinstance(one, _Value) and isinstance(other, _Value)


def _equal(one: object, other: object) -> bool:
    try:
        return bool(one is other or one == other)
    except Exception:  # numbers may be of classes of others
        return False


def _leading_to(parts: Mapping[T, Collection[T]], found: Collection[T]) -> set[T]:
    """All that is found, that has a part which is, or a part of a part."""
    wholes: dict[T, list[T]] = {}
    for whole, inner in parts.items():
        for part in inner:
            wholes.setdefault(part, []).append(whole)
    leading, waiting = set(found), list(found)
    while waiting:
        fresh = [one for one in wholes.get(waiting.pop(), ()) if one not in leading]
        leading.update(fresh)
        waiting += fresh
    return leading

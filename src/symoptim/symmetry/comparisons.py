"""Which sizes of its inputs a model compares with what, and at which sizes the outcome changes.

Asked of torch: in a pass whose inputs have symbols for sizes, every comparison (``shape[1] > 512``) is noted
as a guard: a formula in these symbols that holds at the sizes of the example.

    n // 64 > 5       changes at 384
    n * 0.5 > 150     changes at 301
    n % 10 == 0       changes at 10, say

A formula is evaluated at all sizes nearby, at those near its numbers, and at larger and larger ones; then the
first size on the other side is found by bisection.
"""

import math
import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from symoptim.symmetry.environment import quietly
from symoptim.symmetry.module_stack import ModuleStack
from symoptim.symmetry.tensors import own_tensors
from symoptim.symmetry.variations import Call

ASK: Any = cast("Any", torch.ops.aten)._local_scalar_dense.default
"""Hands a value to Python."""
NBYTES: Any = cast("Any", torch.Tensor).nbytes.__get__
"""Bytes of a tensor: torch does not know them of one with symbols for sizes."""
SPLITS = ("split", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk", "hsplit", "vsplit", "dsplit")
"""Functions of torch that return as many tensors as a size gives: what is done with each may differ."""
LARGEST_INDEX = 2**31 - 2
"""Kernels with indices of 32 bits are for fewer entries than about that."""


class Guard(NamedTuple):
    """A comparison of sizes, as it turned out."""

    expression: Any
    place: str
    """The module that was at work."""
    by_python: bool
    """Whether it was not made by a function of torch."""


@dataclass(slots=True)
class Guards:
    """Comparisons of sizes that a model has made in a pass."""

    environment: Any
    placed: list[Guard] = field(default_factory=list[Guard])
    """Those that may choose what is computed."""
    torchs: list[Guard] = field(default_factory=list[Guard])
    """Those by which torch chooses how, or sees that sizes agree."""
    seen: int = 0


def _is_torchs(guard: Any) -> bool:
    """Whether an operation of torch compares: it chooses how to compute, not what."""
    if any(number.is_Integer and number >= LARGEST_INDEX for number in guard.expr.atoms()):
        return True  # kernels count with 32 or 64 bits; the file may be that of the module which calls them
    where = getattr(getattr(guard, "sloc", None), "framework_loc", None)
    file, torchs = Path(getattr(where, "filename", "")), Path(torch.__file__).parent
    # Code without a file is taken for that of the module that calls it, which may be one of torch.nn. Its
    # functions call kernels that have limits of their own: cuDNN's batch normalization takes 880,801 rows.
    return file.is_relative_to(torchs) and not file.is_relative_to(torchs / "nn" / "modules")


@dataclass(slots=True)
class Pass:
    """A pass with symbols for sizes."""

    guards: Guards
    fakes: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    """Inputs by number."""
    failure: Exception | None = None
    failed_in: str = ""

    @property
    def looks_up(self) -> bool:
        """Whether it ended where a size was looked up in a table."""
        said = str(self.failure)
        return isinstance(self.failure, TypeError) and "unhashable" in said and "SymInt" in said


def symbolic_pass(model: nn.Module, call: Call, *, values: bool, by_python: bool = False) -> Pass:
    """Call a model on tensors with symbols for sizes.

    Args:
        model: a copy of the network, which may be left with tensors without values in its attributes.
        call: an example.
        values: whether values are computed too, so that the pass goes on where Python asks for them.
        by_python: whether operations that torch's kernels make of others are made so by Python. Of kernels,
            some take no symbols for sizes (padding); Python takes longer.
    """
    try:
        from torch._dispatch.python import enable_python_dispatcher
        from torch._subclasses.fake_tensor import FakeTensorConverter, FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
    except ImportError as failure:  # of a version of torch that has them elsewhere
        return Pass(Guards(None), failure=failure)
    environment: Any = ShapeEnv(duck_shape=False)
    mode: Any = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    mode.cache_enabled = False
    if values:
        mode.propagate_real_tensors = True
        mode.fake_tensor_converter = FakeTensorConverter(copy_data=True)
    found = Pass(Guards(environment))

    def fake(number: int, tensor: Tensor) -> Tensor:
        context = cast("Any", StatelessSymbolicContext)(dynamic_sizes=[DimDynamic.DYNAMIC] * tensor.dim())
        found.fakes[number] = mode.from_tensor(tensor.detach(), symbolic_context=context)
        return found.fakes[number]

    noting = _Noting(found.guards, model)
    try:
        symbolic = call.changed(fake)
        tensors = {name: mode.from_tensor(tensor, static_shapes=True) for name, tensor in own_tensors(model)}
        rules = enable_python_dispatcher() if by_python else nullcontext()
        with quietly(), noting.noted(), rules, mode, _Answers(), _InTorch(noting), torch.no_grad():
            functional_call(model, tensors, symbolic.inputs, dict(symbolic.keywords))
    except Exception as failure:  # what was compared before holds all the same
        found.failure, found.failed_in = failure, _module_of(failure, noting.modules.names)
    return found


def _module_of(failure: Exception, places: Mapping[int, str]) -> str:
    """Name of the module whose method was at work when something failed."""
    found = ""
    for frame, _ in walk_tb(failure.__traceback__):
        found = places.get(id(frame.f_locals.get("self")), found)
    return found


class _Answers(TorchDispatchMode):
    """Whoever asks for a value that is known besides its symbol gets it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = getattr(args[0], "real_tensor", None) if func is ASK else None
        return func(*args, **(kwargs or {})) if value is None else value.item()


class _Noting:
    """Notes which module is at work when a guard is added."""

    def __init__(self, guards: Guards, model: nn.Module) -> None:
        self.guards, self.modules = guards, ModuleStack(model)

    def note(self, *, by_python: bool = True, chooses: bool = False) -> None:
        """All guards that came since the last time are of the module at work."""
        found = self.guards.environment.guards[self.guards.seen :]
        for guard in found:
            kept = self.guards.placed if chooses or not _is_torchs(guard) else self.guards.torchs
            kept.append(Guard(guard.expr, self.modules.top, by_python))
        self.guards.seen += len(found)

    @contextmanager
    def noted(self) -> Generator[None]:
        """Note them while modules are called."""

        def leaving(*_: object) -> None:
            self.note()

        try:
            with self.modules.followed(entering=self.note, leaving=leaving):
                yield
        finally:  # also those of a pass that fails
            self.note()


class _InTorch(TorchFunctionMode):
    """Guards that come while a function of torch is at work are its own."""

    def __init__(self, noting: _Noting) -> None:
        super().__init__()
        self.noting = noting

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.noting.note()
        try:
            return _bytes(args[0]) if func == NBYTES else func(*args, **(kwargs or {}))
        finally:
            self.noting.note(by_python=False, chooses=getattr(func, "__name__", "") in SPLITS)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


LARGEST_SIZE = 10**6
"""A comparison that has one outcome at all smaller sizes, and near all its numbers, chooses nothing."""
NEARBY = 300
"""Sizes on either side of the example's that are all looked at."""
FARTHEST = 5000
"""The same where outcomes may change again and again, as of ``n % 128 == 127``: twice its numbers."""
MOST_THRESHOLDS = 8
"""Sizes for all comparisons of an axis."""
OPERATORS: Any = operator  # their types are not known
IN_PYTHON: Mapping[str, Callable[..., Any]] = {
    "FloorDiv": OPERATORS.floordiv,
    "CleanDiv": OPERATORS.floordiv,
    "IntTrueDiv": OPERATORS.truediv,
    "FloatTrueDiv": OPERATORS.truediv,
    "PythonMod": OPERATORS.mod,
    "ToFloat": float,
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
}
"""What torch writes in formulas; sympy takes a tenth of a millisecond for each value, these a thousandth."""

Holds = Callable[[int], bool]
"""Whether a comparison holds at a size."""


class Comparisons:
    """Comparisons of a symbol for a size.

    Args:
        guards: formulas that hold at the size of the example, or do not.
        symbol: the size.
        size: that of the example.
    """

    def __init__(self, guards: Sequence[object], symbol: object, size: int) -> None:  # noqa: D107 - the class says it
        different = {str(guard): guard for guard in guards}.values()
        self.size, self.numbers = size, [_numbers(guard) for guard in different]
        self.holds = [_evaluated(guard, symbol) for guard in different]
        both = zip(self.holds, self.numbers, strict=True)
        self.thresholds = [set(_thresholds(holds, numbers, size)) for holds, numbers in both]
        """The closest sizes at which the outcome of each changes."""

    def different_at(self, size: int) -> frozenset[int]:
        """Numbers of those with another outcome at another size."""
        return frozenset(n for n, holds in enumerate(self.holds) if holds(size) != holds(self.size))

    def with_threshold_at(self, size: int) -> frozenset[int]:
        """Numbers of those whose outcome changes first at a size, beginning at the example's."""
        return frozenset(n for n, sizes in enumerate(self.thresholds) if size in sizes)

    def threshold_sizes(self) -> list[int]:
        """Sizes such that each comparison has another outcome at one of them, if it can; the closest first.

        >>> import sympy
        >>> n = sympy.Symbol("n", integer=True, positive=True)
        >>> Comparisons([n // 64 <= 5, 0.5 * n <= 150.0, sympy.Ne(n % 10, 0), n > 0], n, 5).threshold_sizes()
        [10, 301, 384]
        """
        found = sorted(
            {size for sizes in self.thresholds for size in sizes}, key=lambda n: (abs(n - self.size), n)
        )
        if len(found) > MOST_THRESHOLDS:
            enough = self._cover(found)
            found = [*enough, *(n for n in found if n not in enough)][:MOST_THRESHOLDS]
        return found

    def _cover(self, found: Sequence[int]) -> list[int]:
        """A few of the sizes, at which as many comparisons have another outcome as at all of them."""
        different = {n: self.different_at(n) for n in found}
        chosen, left = list[int](), frozenset[int]().union(*different.values())
        while left:
            chosen.append(max(found, key=lambda n: len(different[n] & left)))
            left -= different[chosen[-1]]
        return chosen


def _thresholds(holds: Holds, numbers: Iterable[int], size: int) -> Iterator[int]:
    """The closest sizes, below and above, at which a comparison is no longer what it is at the example's."""
    value, candidates = holds(size), sorted(_candidates(numbers, size))
    for side in ([n for n in reversed(candidates) if n < size], [n for n in candidates if n > size]):
        same = list(takewhile(lambda n: holds(n) == value, side))
        if len(same) < len(side):
            yield _first(holds, (same or [size])[-1], side[len(same)])


def _first(holds: Holds, same: int, other: int) -> int:
    """The size closest to ``same`` that is like ``other``, if the outcome changes once between the two."""
    value = holds(same)
    while abs(other - same) > 1:
        middle = (same + other) // 2
        same, other = (middle, other) if holds(middle) == value else (same, middle)
    return other


def _candidates(numbers: Iterable[int], size: int) -> set[int]:
    """Sizes nearby, near the comparison's numbers, and then each larger by a quarter than the one before."""
    near = {number + step for number in numbers for step in (-1, 0, 1)}
    reach = max([NEARBY, *(2 * number for number in numbers if 2 * number <= FARTHEST)])
    return {n for n in (*near, *range(size - reach, size + reach + 1), *_growing()) if n > 0}


def _growing() -> Iterator[int]:
    n = 8
    while n <= LARGEST_SIZE:
        yield n
        n += n // 4


def _numbers(guard: Any) -> set[int]:
    return {int(abs(number)) for number in guard.atoms() if number.is_number and number.is_finite}


def _evaluated(guard: Any, symbol: Any) -> Holds:
    """Whether a comparison holds; what cannot be said of a number is not one, and always holds."""

    def by_sympy(size: int) -> bool:
        try:
            return bool(guard.subs(symbol, size))
        except Exception:
            return True

    def holds(size: int) -> bool:
        try:
            return bool(by_python(size))
        except Exception:  # a function that has no other name here, or a division by zero
            return by_sympy(size)

    try:
        sympy: Any = import_module("sympy")  # torch needs it for such passes, and imports it late too
        by_python: Any = sympy.lambdify(symbol, guard, modules=[dict(IN_PYTHON), "math"])
    except Exception:
        return by_sympy
    return holds

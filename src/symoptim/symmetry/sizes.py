"""Which sizes of a model's inputs are worth a try: those at which it compares otherwise.

Asked of torch: in a pass whose inputs have symbols for sizes, every comparison (``shape[1] > 512``) is noted as
a guard, and for each guard there is a size at which it does not hold.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from traceback import walk_tb
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from symoptim.symmetry.isolation import isolated
from symoptim.symmetry.quiet import quietly
from symoptim.symmetry.tensors import own_tensors
from symoptim.symmetry.variations import Axis, Call

MOST_SIZES = 8
"""Sizes that are tried for each axis."""
ASK: Any = cast("Any", torch.ops.aten)._local_scalar_dense.default
"""Hands a value to Python."""
LARGEST_INDEX = 2**31 - 2
"""Kernels with indices of 32 bits are for fewer entries than about that."""


class Sizes(NamedTuple):
    """Axes that vary together, and sizes to try for them."""

    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]
    decided_in: tuple[str, ...] = ()
    """Modules that compare the size with something."""


class ToTry(NamedTuple):
    """What is known of the sizes of a model's inputs."""

    groups: list[Sizes]
    looked_up: str | None = None
    """A module that looks a size up in a table, such as a dictionary, which may have other sizes."""
    lost: str | None = None
    """The module up to which torch could follow sizes, if not to the end: later comparisons are not known."""


def sizes_to_try(model: nn.Module, call: Call) -> ToTry:
    """Axes of the inputs whose sizes may vary, and sizes at which the model may take another path.

    Args:
        model: the network; it is left as it is.
        call: an example.

    Returns:
        Groups of axes that vary together, and what could not be seen.
    """
    passes = [_symbolic_pass(isolated(model), call, values=True)]
    if passes[0].failure is not None and not passes[0].looks_up:
        passes.append(_symbolic_pass(isolated(model), call, values=False))
    best = max(passes, key=lambda one: (one.failure is None, len(one.guards.placed)))
    if not best.fakes:
        return ToTry(_by_equal_sizes(call), lost="")
    groups = _groups(best.guards, call, best.fakes)
    if best.failure is None:
        return ToTry(groups)
    return ToTry(groups, best.failed_in if best.looks_up else None, best.failed_in)


def _by_equal_sizes(call: Call) -> list[Sizes]:
    """Axes of one size vary together; where nothing more is known."""
    groups: dict[int, list[Axis]] = {}
    for number, tensor in enumerate(call.tensors()):
        for axis, size in enumerate(tensor.shape):
            groups.setdefault(size, []).append((number, axis))
    return [Sizes(tuple(axes), _ordinary(size)) for size, axes in groups.items() if size]


def multiples(size: int) -> tuple[int, ...]:
    """Sizes for models that take only multiples of something: twice and half as many.

    >>> multiples(8), multiples(1)
    ((16, 4), (2,))
    """
    return tuple(n for n in (2 * size, size // 2) if n > 0)


def _ordinary(size: int) -> tuple[int, ...]:
    """Sizes that are tried without a reason: one more, about twice and half as many."""
    return tuple(dict.fromkeys(n for n in (size + 1, 2 * size + 1, size // 2) if n > 0 and n != size))


@dataclass(slots=True)
class _Guards:
    """Comparisons of sizes that a model has made in a pass, with the module each was made in."""

    environment: Any
    placed: list[tuple[Any, str]] = field(default_factory=list[tuple[Any, str]])
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
class _Pass:
    """A pass with symbols for sizes."""

    guards: _Guards
    fakes: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    """Inputs by number."""
    failure: Exception | None = None
    failed_in: str = ""

    @property
    def looks_up(self) -> bool:
        """Whether it ended where a size was looked up in a table."""
        said = str(self.failure)
        return isinstance(self.failure, TypeError) and "unhashable" in said and "SymInt" in said


def _symbolic_pass(model: nn.Module, call: Call, *, values: bool) -> _Pass:
    """Call a model on tensors with symbols for sizes.

    Args:
        model: a copy of the network, which may be left with tensors without values in its attributes.
        call: an example.
        values: whether values are computed too, so that the pass goes on where Python asks for them.
    """
    try:
        from torch._subclasses.fake_tensor import FakeTensorConverter, FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
    except ImportError as failure:  # of a version of torch that has them elsewhere
        return _Pass(_Guards(None), failure=failure)
    environment: Any = ShapeEnv(duck_shape=False)
    mode: Any = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    if values:
        mode.propagate_real_tensors, mode.cache_enabled = True, False
        mode.fake_tensor_converter = FakeTensorConverter(copy_data=True)
    found = _Pass(_Guards(environment))

    def fake(number: int, tensor: Tensor) -> Tensor:
        context = cast("Any", StatelessSymbolicContext)(dynamic_sizes=[DimDynamic.DYNAMIC] * tensor.dim())
        found.fakes[number] = mode.from_tensor(tensor.detach(), symbolic_context=context)
        return found.fakes[number]

    named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    places = {id(module): name for name, module in named}
    try:
        symbolic = call.changed(fake)
        tensors = {name: mode.from_tensor(tensor, static_shapes=True) for name, tensor in own_tensors(model)}
        with quietly(), _noting(found.guards, places), mode, _Answers(), torch.no_grad():
            functional_call(model, tensors, symbolic.inputs, dict(symbolic.keywords))
    except Exception as failure:  # what was compared before holds all the same
        found.failure, found.failed_in = failure, _module_of(failure, places)
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


class _noting:  # noqa: N801 - used as a statement
    """Note which module is at work when a guard is added."""

    def __init__(self, guards: _Guards, places: Mapping[int, str]) -> None:
        self.guards, self.places = guards, places
        self.stack, self.hooks = [""], list[Any]()

    def note(self) -> None:
        """All guards that came since the last time are of the module on top."""
        found = self.guards.environment.guards[self.guards.seen :]
        self.guards.placed.extend((guard.expr, self.stack[-1]) for guard in found if not _is_torchs(guard))
        self.guards.seen += len(found)

    def __enter__(self) -> None:
        thread = get_ident()  # hooks of all modules are called in every thread

        def enter(module: nn.Module, _: Any) -> None:
            if get_ident() == thread:
                self.note()
                self.stack.append(self.places.get(id(module), self.stack[-1]))

        def leave(*_: Any) -> None:
            if get_ident() == thread:
                self.note()
                self.stack.pop()

        hooks: Any = torch.nn.modules.module
        self.hooks = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, always_call=True),
        ]

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()
        self.note()


def _groups(guards: _Guards, call: Call, fakes: Mapping[int, Tensor]) -> list[Sizes]:
    """Axes by the symbol that their size is, with sizes at which guards of that symbol fail."""
    environment = guards.environment
    axes: dict[Any, list[Axis]] = {}
    hints: dict[Any, int] = {}
    single: dict[int, list[Axis]] = {}
    fixed: dict[int, list[Axis]] = {}
    tensors = call.tensors()
    for number, fake in fakes.items():
        given = tensors[number]
        for axis, size in enumerate(fake.shape):
            expression = (
                environment.simplify(cast("Any", size).node.expr) if isinstance(size, torch.SymInt) else None
            )
            if expression is not None and expression.is_Symbol:
                axes.setdefault(expression, []).append((number, axis))
                hints[expression] = given.shape[axis]
            elif given.shape[axis] == 1:  # torch takes a size of one as fixed
                single.setdefault(axis, []).append((number, axis))
            else:  # len(x), x.shape[1] == 8, or a width: what is done at other sizes is not known
                fixed.setdefault(given.shape[axis], []).append((number, axis))
    found = [Sizes(tuple(mine), (2, 3)) for mine in single.values()]
    found += [Sizes(tuple(mine), (*_ordinary(size), 4 * size + 1)) for size, mine in fixed.items() if size]
    for symbol, mine in axes.items():
        compared = list(_compared_with(symbol, guards, hints))
        sizes = _where_others_hold([guard for guard, _ in compared], symbol, hints[symbol])
        tried = tuple(dict.fromkeys((*sizes, *_ordinary(hints[symbol])[:2])))[:MOST_SIZES]
        found.append(Sizes(tuple(mine), tried, tuple(dict.fromkeys(place for _, place in compared))))
    return found


def _compared_with(symbol: Any, guards: _Guards, hints: Mapping[Any, int]) -> Iterator[tuple[Any, str]]:
    """Guards of a symbol, other symbols at the sizes they have in the example."""
    for expression, place in guards.placed:
        simple = guards.environment.simplify(expression)
        if symbol in simple.free_symbols:
            others = {one: hints[one] for one in simple.free_symbols if one != symbol and one in hints}
            alone = simple.subs(others)
            if alone.free_symbols == {symbol}:
                yield alone, place


def _where_others_hold(guards: list[Any], symbol: Any, size: int) -> list[int]:
    """A few sizes such that every guard fails at one of them, where there are any."""
    numbers = {int(number) for guard in guards for number in guard.atoms() if number.is_Integer}
    near = {number + step for number in numbers for step in (-1, 0, 1)}
    candidates = sorted({n for n in (*near, *range(1, 2 * size + 10)) if n > 0}, key=lambda n: abs(n - size))
    fails = {
        n: {place for place, guard in enumerate(guards) if not _holds(guard, symbol, n)} for n in candidates
    }
    chosen: list[int] = []
    left = set[int]().union(*fails.values()) if fails else set[int]()
    while left:
        best = max(candidates, key=lambda n: len(fails[n] & left))
        chosen.append(best)
        left -= fails[best]
    return chosen


def _holds(guard: Any, symbol: Any, size: int) -> bool:
    try:
        return bool(guard.subs(symbol, size))
    except Exception:  # what cannot be said of a number is not a comparison
        return True

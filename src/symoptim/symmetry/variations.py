"""Other calls of a model: inputs of other values and of other sizes than an example.

A model may take another path for them. Which sizes are worth a try is asked of torch: a pass over tensors
without values, whose sizes are symbols, notes every comparison of sizes (``shape[1] > 512``) as a guard, and
for each guard there is a size at which it does not hold.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from symoptim.symmetry.quiet import quietly
from symoptim.symmetry.tensors import own_tensors

LARGEST_INPUT = 2**16
"""Entries of an input that is tried though the example has fewer; four times the example is always tried."""
MOST_SIZES = 8
"""Sizes that are tried for each axis."""
LARGEST_INDEX = 2**31 - 2
"""Kernels with indices of 32 bits are for fewer entries than about that."""


class Call(NamedTuple):
    """Arguments of a call of the model."""

    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments, in order."""
        leaves: list[Any] = tree_leaves((self.inputs, dict(self.keywords)))
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def changed(self, change: Callable[[int, Tensor], Tensor]) -> "Call":
        """The same call with other tensors; ``change`` gets the number of each and the tensor itself."""
        leaves, tree = tree_flatten((self.inputs, dict(self.keywords)))
        count, done = 0, dict[int, Tensor]()  # a tensor that is given twice stays one
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                if id(leaf) not in done:
                    done[id(leaf)] = change(count, leaf)
                leaves[place], count = done[id(leaf)], count + 1
        inputs, keywords = cast("tuple[tuple[Any, ...], dict[str, Any]]", tree_unflatten(leaves, tree))
        return Call(inputs, keywords)


def other_values(call: Call, seed: int = 0) -> list[Call]:
    """Calls with tensors of the same sizes and other values: negated, random, zero, ten times as large.

    Integers stay between the smallest and the largest of the example, for they may be places of a table, but
    for zeros; a mask of ones gets zeros.

    >>> [call.inputs[0].tolist() for call in other_values(Call((torch.tensor([2, 3, 3]),), {}))[::2]]
    [[3, 2, 2], [0, 0, 0]]
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    if any(tensor.device.type == "meta" for tensor in call.tensors()):
        return []  # there are no values

    def random(tensor: Tensor) -> Tensor:
        return _random(tensor, generator)

    kinds: list[Callable[[Tensor], Tensor]] = [_negated, random, torch.zeros_like, _large]
    return [_changed(call, kind) for kind in kinds]


def _changed(call: Call, kind: Callable[[Tensor], Tensor]) -> Call:
    return call.changed(lambda _, tensor: kind(tensor.detach()))


def _negated(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.bool:
        return ~tensor
    if tensor.is_floating_point() or tensor.is_complex() or not tensor.numel():
        return -tensor
    return tensor.max() + tensor.min() - tensor


def _random(tensor: Tensor, generator: torch.Generator) -> Tensor:
    if not tensor.numel() or tensor.is_complex() or tensor.layout != torch.strided:
        return tensor.clone()
    if tensor.is_floating_point():
        drawn = torch.randn(tensor.shape, generator=generator, device="cpu")
        size = float(tensor.abs().max()) / 2 or 1.0
        return (drawn * size).to(tensor.device, tensor.dtype)
    low, high = int(tensor.min()), int(tensor.max())
    if low == high and low in (0, 1):
        low, high = 0, 1
    drawn = torch.randint(low, high + 1, tensor.shape, generator=generator, device="cpu")
    return drawn.to(tensor.device, tensor.dtype)


def _large(tensor: Tensor) -> Tensor:
    if tensor.is_floating_point() or tensor.is_complex():
        return 10 * tensor
    return torch.full_like(tensor, int(tensor.max())) if tensor.numel() else tensor


Axis = tuple[int, int]
"""Number of a tensor of a call, and one of its axes."""


class Sizes(NamedTuple):
    """Axes that vary together, and sizes to try for them."""

    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]
    decided_in: tuple[str, ...] = ()
    """Modules that compare the size with something."""


def resized(call: Call, axes: tuple[Axis, ...], size: int, example: Call | None = None) -> Call | None:
    """The same call with axes of another size, values repeated; None if it were too large for the example.

    >>> resized(Call((torch.tensor([1, 2, 3]),), {}), ((0, 0),), 5).inputs[0].tolist()
    [1, 2, 3, 1, 2]
    """

    def change(number: int, tensor: Tensor) -> Tensor:
        for mine, axis in axes:
            if mine == number and tensor.layout in (torch.strided, torch.sparse_coo):  # others take none out
                places = torch.arange(size, device=tensor.device) % max(1, tensor.shape[axis])
                tensor = tensor.detach().index_select(axis, places)
        return tensor

    before = sum(tensor.numel() for tensor in (example or call).tensors())
    after = sum(
        tensor.numel() // max(1, tensor.shape[axis]) * size
        for number, tensor in enumerate(call.tensors())
        for mine, axis in axes
        if mine == number
    )
    return call.changed(change) if after <= max(4 * before, LARGEST_INPUT) else None


def sizes_to_try(model: nn.Module, call: Call) -> list[Sizes]:
    """Axes of the inputs whose sizes may vary, and sizes at which the model may take another path.

    Args:
        model: a copy of the network, which may be left with tensors without values in its attributes.
        call: an example.

    Returns:
        Groups of axes that vary together.
    """
    found = _by_symbols(model, call)
    return found if found is not None else _by_equal_sizes(call)


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


def _by_symbols(model: nn.Module, call: Call) -> list[Sizes] | None:
    """Let torch find out how sizes hang together; None where it cannot."""
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
    except ImportError:  # of a version of torch that has them elsewhere
        return None
    environment: Any = ShapeEnv(duck_shape=False)
    mode: Any = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    fakes: dict[int, Tensor] = {}

    def fake(number: int, tensor: Tensor) -> Tensor:
        context = cast("Any", StatelessSymbolicContext)(dynamic_sizes=[DimDynamic.DYNAMIC] * tensor.dim())
        fakes[number] = mode.from_tensor(tensor.detach(), symbolic_context=context)
        return fakes[number]

    guards = _Guards(environment)
    named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    places = {id(module): name for name, module in named}
    try:
        symbolic = call.changed(fake)
        tensors = {name: mode.from_tensor(tensor, static_shapes=True) for name, tensor in own_tensors(model)}
        with quietly(), _noting(guards, places), mode, torch.no_grad():
            functional_call(model, tensors, symbolic.inputs, dict(symbolic.keywords))
    except Exception:  # of values it does not have, say: what it has compared before holds all the same
        if not fakes:
            return None
    return _groups(guards, call, fakes)


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

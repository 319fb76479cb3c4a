"""Which sizes of a model's inputs are worth a try: where the outcome of a comparison changes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from symoptim.symmetry.comparisons import Comparisons, Guard, Guards, Pass, symbolic_pass
from symoptim.symmetry.copies import isolated
from symoptim.symmetry.variations import Axis, Call

FACTORS = (2, 3)
"""Sizes that agree because they are in proportion do so at these multiples of them."""

Follower = tuple[Axis, Callable[[int], int | None]]
"""An axis and its size where that of another is given; None if there is none."""


class Sizes(NamedTuple):
    """Axes that vary together, and sizes to try for them."""

    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]
    decided_in: tuple[str, ...] = ()
    """Modules that compare the size with something."""
    thresholds: tuple[int, ...] = ()
    """Those of the sizes at which the outcome of a comparison changes."""
    asked: Comparisons | None = None
    """Comparisons by Python code."""
    followers: tuple[Follower, ...] = ()
    """Axes whose size depends on that of these."""
    partners: tuple[tuple[Follower, ...], ...] = ()
    """Other axes that may have to vary with these, in proportion."""
    again: bool = False
    """Whether torch does not see comparisons at this size, and may at others."""
    bound: bool = False
    """Whether some other size, such as a weight's, allows this one only."""
    equated: bool = False
    """Whether Python code asks if these axes are equally long, so that they may be not."""

    def at(self, size: int) -> dict[Axis, int] | None:
        """Sizes of all axes."""
        found = {axis: follow(size) for axis, follow in self.followers}
        if not all(found.values()):
            return None
        return dict.fromkeys(self.axes, size) | cast("dict[Axis, int]", found)

    def with_partners(self) -> Iterator["Sizes"]:
        """The same with all partners, and with each alone."""
        if len(self.partners) > 1:
            yield self._replace(followers=(*self.followers, *chain(*self.partners)))
        for one in self.partners:
            yield self._replace(followers=(*self.followers, *one))


class ToTry(NamedTuple):
    """What is known of the sizes of a model's inputs."""

    groups: list[Sizes]
    looked_up: str | None = None
    """A module that looks a size up in a table, such as a dictionary, which may have other sizes."""
    lost: str | None = None
    """The module up to which torch could follow sizes, if not to the end: later comparisons are not known."""
    compared: int = 0
    """How many comparisons were seen, torch's own included."""


def sizes_to_try(model: nn.Module, call: Call, known: set[str], *, values: bool = True) -> ToTry:
    """Axes of the inputs whose sizes may vary, and sizes at which the model may take another path.

    Args:
        model: the network; it is left as it is.
        call: an example.
        known: comparisons for which sizes were proposed already; what is compared here is added.
        values: whether the model may ask for values: if not, none need be computed.

    Returns:
        Groups of axes that vary together, and what could not be seen.
    """
    without = None if values else symbolic_pass(isolated(model), call, values=False)
    passes = [without] if without is not None and without.failure is None else list[Pass]()
    for computed, by_python in ((True, False), (True, True), (False, False)):
        if passes and (passes[-1].failure is None or passes[-1].looks_up):
            break
        passes.append(symbolic_pass(isolated(model), call, values=computed, by_python=by_python))
    best = max(passes, key=lambda one: (one.failure is None, len(one.guards.placed)))
    if not best.fakes:
        return ToTry(_by_equal_sizes(call), lost="")
    groups = _Axes(best.guards, call, best.fakes).groups(known)
    compared = sum(one.guards.seen for one in passes)
    if best.failure is None:
        return ToTry(groups, compared=compared)
    return ToTry(groups, best.failed_in if best.looks_up else None, best.failed_in, compared)


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
class _Axes:
    """Axes of the inputs by the symbol that their size is in a pass."""

    guards: Guards
    call: Call
    fakes: Mapping[int, Tensor]
    by_symbol: dict[Any, list[Axis]] = field(default_factory=dict[Any, list[Axis]])
    hints: dict[Any, int] = field(default_factory=dict[Any, int])
    """Sizes in the example."""
    following: dict[Any, list[Follower]] = field(default_factory=dict[Any, list[Follower]])
    """Those whose size follows from a symbol."""
    single: dict[int, list[Axis]] = field(default_factory=dict[int, list[Axis]])
    fixed: dict[int, list[Axis]] = field(default_factory=dict[int, list[Axis]])
    compared: list[tuple[Guard, Any]] = field(default_factory=list[tuple[Guard, Any]])
    """Comparisons, and their formulas with all that is known of the symbols."""
    equal: list[Any] = field(default_factory=list[Any])
    """Formulas of sizes that have to be equal to a number."""

    def groups(self, known: set[str]) -> list[Sizes]:
        """What to try, but for the sake of comparisons that are known."""
        tensors, simplify = self.call.tensors(), self.guards.environment.simplify
        self.compared = [(guard, simplify(guard.expression)) for guard in self.guards.placed]
        others = {guard.expression: simplify(guard.expression) for guard in self.guards.torchs}
        formulas = (*(formula for _, formula in self.compared), *others.values())
        self.equal = [formula for formula in formulas if _is_for_a_number(formula)]
        for number, fake in self.fakes.items():
            for axis, size in enumerate(fake.shape):
                self._sort((number, axis), size, tensors[number].shape[axis])
        found = [Sizes(tuple(axes), (2, 3), again=True) for axes in self.single.values()]
        found += [
            Sizes(tuple(axes), (*_ordinary(size), 4 * size + 1), again=True)
            for size, axes in self.fixed.items()
            if size
        ]
        found += [self._group(symbol, known) for symbol in self.by_symbol]
        known |= {self._key(formula) for _, formula in self.compared}
        return found

    def _sort(self, axis: Axis, size: object, given: int) -> None:
        symbolic = isinstance(size, torch.SymInt)
        expression = self.guards.environment.simplify(cast("Any", size).node.expr) if symbolic else None
        if expression is not None and expression.is_Symbol:
            self.by_symbol.setdefault(expression, []).append(axis)
            self.hints[expression] = given
        elif expression is not None and len(expression.free_symbols) == 1:
            (symbol,) = expression.free_symbols
            self.following.setdefault(symbol, []).append((axis, partial(_evaluated, expression, symbol)))
        elif given == 1:  # torch takes a size of one as fixed
            self.single.setdefault(axis[1], []).append(axis)
        else:  # len(x), x.shape[1] == 8, or a width: what is done at other sizes is not known
            self.fixed.setdefault(given, []).append(axis)

    def _group(self, symbol: object, known: set[str]) -> Sizes:
        """Sizes for one symbol: where the outcome of comparisons changes, and ordinary ones."""
        compared = list(self._compared_with(symbol))
        new = [(guard, alone) for guard, formula, alone in compared if self._key(formula) not in known]
        hint = self.hints[symbol]
        thresholds = tuple(Comparisons([alone for _, alone in new], symbol, hint).threshold_sizes())
        return Sizes(
            tuple(self.by_symbol[symbol]),
            tuple(dict.fromkeys((*thresholds, *_ordinary(hint)[:2], 4 * hint + 1))),
            decided_in=tuple(dict.fromkeys(guard.place for guard, _, _ in compared if guard.by_python)),
            thresholds=thresholds,
            asked=Comparisons([alone for guard, alone in new if guard.by_python], symbol, hint),
            followers=tuple(self.following.get(symbol, ())),
            partners=tuple(self._partners(symbol)),
            bound=self._is_bound(symbol),
            equated=self._is_equated(symbol),
        )

    def _compared_with(self, symbol: object) -> Iterator[tuple[Guard, Any, Any]]:
        """Guards of a symbol, their formulas, and these with other symbols at the sizes of the example."""
        others = {one: hint for one, hint in self.hints.items() if one != symbol}
        for guard, formula in self.compared:
            if symbol in formula.free_symbols:
                alone = formula.subs(others)
                if alone.free_symbols == {symbol}:
                    yield guard, formula, alone

    def _key(self, formula: Any) -> str:
        """What is compared, however it turned out, by axes: symbols may have other names in another pass."""
        text = min(str(formula), str(~formula))
        for symbol, axes in sorted(self.by_symbol.items(), key=lambda one: -len(str(one[0]))):
            text = text.replace(str(symbol), f"size {axes[0]}")
        return text

    def _partners(self, symbol: object) -> Iterator[tuple[Follower, ...]]:
        """Other symbols whose sizes are multiples of this one's, or the other way round."""
        mine = self.hints[symbol]
        for other, axes in self.by_symbol.items():
            size = self.hints[other]
            if other != symbol and mine and size and 0 in (size % mine, mine % size):
                follow = partial(_in_proportion, size, mine)
                yield (*((axis, follow) for axis in axes), *self.following.get(other, ()))

    def _is_equated(self, symbol: object) -> bool:
        """Whether Python code has found axes equal that have this symbol since."""
        simplify = self.guards.environment.simplify
        asked = [guard.expression for guard in self.guards.placed if guard.by_python]
        equal = [one for one in asked if one.func.__name__ == "Equality" and len(one.free_symbols) > 1]
        return any(simplify(one) == symbol for formula in equal for one in formula.free_symbols)

    def _is_bound(self, symbol: object) -> bool:
        """Whether sizes have to be equal to a number, so that this one cannot grow, alone or with others."""
        larger = [{one: factor * hint for one, hint in self.hints.items()} for factor in FACTORS]
        mine = (formula for formula in self.equal if symbol in formula.free_symbols)
        return any(all(str(formula.subs(sizes)) == "False" for sizes in larger) for formula in mine)


def _is_for_a_number(formula: Any) -> bool:
    """Whether something has to be equal to a number, such as the size of a weight; zero says nothing."""
    is_equation = formula.func.__name__ == "Equality"
    return is_equation and any(side.is_number and side != 0 for side in formula.args)


def _evaluated(expression: Any, symbol: Any, size: int) -> int | None:
    found = expression.subs(symbol, size)
    return int(found) if found.is_Integer and found > 0 else None


def _in_proportion(mine: int, other: int, size: int) -> int | None:
    """The size that is to ``size`` as ``mine`` to ``other``.

    >>> _in_proportion(10, 5, 21), _in_proportion(5, 10, 21)
    (42, None)
    """
    return mine * size // other if mine * size % other == 0 else None

"""Sizes at which comparisons turn out otherwise than at the size of an example.

    n // 64 > 5       at 384 and above
    n * 0.5 > 150     at 301 and above
    n % 10 == 0       at 10, say

A comparison is whatever can be evaluated at a size. So it is evaluated: at all sizes nearby, at those near
its numbers, and at larger and larger ones; then the first size on the other side is found by bisection.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any

LARGEST_SIZE = 10**6
"""What no smaller size turns, and none near a number in it, is no choice."""
NEARBY = 300
"""Sizes on either side of the example's that are all looked at."""
FARTHEST = 5000
"""The same for a comparison that may turn again and again, such as ``n % 128 == 127``: twice its numbers."""
MOST_TURNS = 8
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

    def __init__(self, guards: Sequence[Any], symbol: Any, size: int) -> None:  # noqa: D107 - the class says it
        different = {str(guard): guard for guard in guards}.values()
        self.size, self.numbers = size, [_numbers(guard) for guard in different]
        self.holds = [_evaluated(guard, symbol) for guard in different]
        both = zip(self.holds, self.numbers, strict=True)
        self.turns = [set(_turns(holds, numbers, size)) for holds, numbers in both]
        """The closest sizes at which each turns."""

    def turned(self, size: int) -> frozenset[int]:
        """Numbers of those that turn out otherwise at another size."""
        return frozenset(n for n, holds in enumerate(self.holds) if holds(size) != holds(self.size))

    def turning(self, size: int) -> frozenset[int]:
        """Numbers of those that turn at a size, and at none closer to the example's."""
        return frozenset(n for n, sizes in enumerate(self.turns) if size in sizes)

    def turning_sizes(self) -> list[int]:
        """Sizes such that every comparison turns at one of them, if there are any: the closest ones first.

        >>> import sympy
        >>> n = sympy.Symbol("n", integer=True, positive=True)
        >>> Comparisons([n // 64 <= 5, 0.5 * n <= 150.0, sympy.Ne(n % 10, 0), n > 0], n, 5).turning_sizes()
        [10, 301, 384]
        """
        found = sorted(
            {turn for sizes in self.turns for turn in sizes}, key=lambda n: (abs(n - self.size), n)
        )
        if len(found) > MOST_TURNS:
            enough = self._cover(found)
            found = [*enough, *(n for n in found if n not in enough)][:MOST_TURNS]
        return found

    def _cover(self, found: Sequence[int]) -> list[int]:
        """A few of the sizes such that all comparisons that turn at one of them turn at one of these."""
        turned = {n: self.turned(n) for n in found}
        chosen, left = list[int](), frozenset[int]().union(*turned.values())
        while left:
            chosen.append(max(found, key=lambda n: len(turned[n] & left)))
            left -= turned[chosen[-1]]
        return chosen


def _turns(holds: Holds, numbers: Iterable[int], size: int) -> Iterator[int]:
    """The closest sizes, below and above, at which a comparison is no longer what it is at the example's."""
    value, candidates = holds(size), sorted(_candidates(numbers, size))
    for side in ([n for n in reversed(candidates) if n < size], [n for n in candidates if n > size]):
        same = list(takewhile(lambda n: holds(n) == value, side))
        if len(same) < len(side):
            yield _first(holds, (same or [size])[-1], side[len(same)])


def _first(holds: Holds, same: int, other: int) -> int:
    """The size closest to ``same`` that is like ``other``, if a comparison turns once between the two."""
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

"""Sizes at which comparisons turn out otherwise than at the size of an example.

    n // 64 > 5       at 384 and above
    n * 0.5 > 150     at 301 and above
    n % 10 == 0       at 10, say

A comparison is whatever can be evaluated at a size. So it is evaluated: at all sizes nearby, at those near
its numbers, and at larger and larger ones; then the first size on the other side is found by bisection.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

LARGEST_SIZE = 10**6
"""What no smaller size turns, and none near a number in it, is no choice."""
NEARBY = 64
"""Sizes on either side of the example's that are all looked at."""
FARTHEST = 500
"""The same for a comparison that may turn again and again, such as ``n % 128 == 127``: twice its numbers."""
MOST_TURNS = 8
"""Sizes for all comparisons of an axis."""


def turning_sizes(guards: Sequence[Any], symbol: Any, size: int) -> list[int]:
    """Sizes such that every comparison turns at one of them, if there are any: the closest ones first.

    Args:
        guards: comparisons of a symbol.
        symbol: the size.
        size: that of the example.

    >>> import sympy
    >>> n = sympy.Symbol("n", integer=True, positive=True)
    >>> turning_sizes([n // 64 <= 5, 0.5 * n <= 150.0, sympy.Ne(n % 10, 0), n > 0], n, 5)
    [10, 301, 384]
    """
    unlike = {str(guard): guard for guard in guards}.values()
    turns = {turn: None for guard in unlike for turn in _turns(guard, symbol, size)}
    found = sorted(turns, key=lambda n: (abs(n - size), n))
    if len(found) > MOST_TURNS:
        enough = _cover(list(unlike), symbol, size, found)
        found = [*enough, *(n for n in found if n not in enough)][:MOST_TURNS]
    return found


def _cover(guards: Sequence[Any], symbol: Any, size: int, found: Sequence[int]) -> list[int]:
    """A few of the sizes such that as many comparisons as turn at all turn at one of them."""
    turned = {
        n: {place for place, one in enumerate(guards) if _value(one, symbol, n) != _value(one, symbol, size)}
        for n in found
    }
    chosen, left = list[int](), set[int]().union(*turned.values())
    while left:
        chosen.append(max(found, key=lambda n: len(turned[n] & left)))
        left -= turned[chosen[-1]]
    return chosen


def _turns(guard: Any, symbol: Any, size: int) -> Iterator[int]:
    """The closest sizes, below and above, at which a comparison is no longer what it is at the example's."""
    value = _value(guard, symbol, size)
    candidates = sorted(_candidates(guard, size))
    for side in ([n for n in reversed(candidates) if n < size], [n for n in candidates if n > size]):
        same = list(takewhile(lambda n: _value(guard, symbol, n) == value, side))
        if len(same) < len(side):
            yield _first(guard, symbol, (same or [size])[-1], side[len(same)])


def _first(guard: Any, symbol: Any, same: int, other: int) -> int:
    """The size closest to ``same`` that is like ``other``, if a comparison turns once between the two."""
    value = _value(guard, symbol, same)
    while abs(other - same) > 1:
        middle = (same + other) // 2
        if _value(guard, symbol, middle) == value:
            same = middle
        else:
            other = middle
    return other


def _candidates(guard: Any, size: int) -> set[int]:
    """Sizes nearby, near the comparison's numbers, and then each larger by a quarter than the one before."""
    numbers = {int(abs(number)) for number in guard.atoms() if number.is_number and number.is_finite}
    near = {number + step for number in numbers for step in (-1, 0, 1)}
    reach = max(NEARBY, *(2 * number for number in numbers if number <= FARTHEST // 2), 0)
    return {n for n in (*near, *range(size - reach, size + reach + 1), *_growing()) if n > 0}


def _growing() -> Iterable[int]:
    n = 8
    while n <= LARGEST_SIZE:
        yield n
        n += n // 4


def _value(guard: Any, symbol: Any, size: int) -> bool:
    """Whether a comparison holds; what cannot be said of a number is not one, and always holds."""
    try:
        return bool(guard.subs(symbol, size))
    except Exception:
        return True

# pyright: basic
"""Long rows on the unit sphere on AMD's Zen, without momentum: a dozen are read before any is moved.

Memory that has to stop takes a while to start again, and two arrays alone do not keep it busy. So rows of the
first half of a matrix and of the second are looked at together, a piece of each in turn, as many as fit the
second cache, and are moved from there.
"""

import numpy as np

from symoptim.kernels.cpu.compiled import njit
from symoptim.kernels.cpu.filters import move
from symoptim.kernels.cpu.machine import FAR, TURN, ZEN
from symoptim.kernels.cpu.sphere import coefficients, divide, products_of_two
from symoptim.kernels.numbers import NEW


@njit
def rows_at_once(size):
    """How many rows of so many bytes, gradient included, are read before any is moved; none elsewhere."""
    return FAR // size if ZEN and size <= FAR // 2 else 0


@njit
def unit_rows_of_two_places(w, g, length, together, number):
    """Step rows on the unit sphere, so many of each half at a time; a last one may be its own neighbor."""
    half = (w.size // length + 1) // 2 * length
    found, square = np.empty((2, together, 3)), number[NEW] * number[NEW]
    for first in range(0, half, together * length):
        last = min(first + together * length, half)
        for row, here in enumerate(range(first, last, length)):
            there = here + half if here + half < w.size else here
            ww = wg = gg = xx = xy = yy = 0.0
            for start in range(0, length, TURN):
                stop = min(start + TURN, length)
                one, two, three = products_of_two(w, g, here + start, here + stop)
                ww, wg, gg = ww + one, wg + two, gg + three
                one, two, three = products_of_two(w, g, there + start, there + stop)
                xx, xy, yy = xx + one, xy + two, yy + three
            a, b, _, _, is_unit = coefficients(w, (ww, wg, 0.0, square * gg), number)
            found[0, row, 0], found[0, row, 1], found[0, row, 2] = a, b, is_unit
            a, b, _, _, is_unit = coefficients(w, (xx, xy, 0.0, square * yy), number)
            found[1, row, 0], found[1, row, 1], found[1, row, 2] = a, b, is_unit
        for place in range(2):
            begin, end = first + place * half, min(last + place * half, w.size)
            for row, here in enumerate(range(begin, end, length)):
                move(w, g, here, here + length, found[place, row, 0], found[place, row, 1])
                if not found[place, row, 2]:
                    divide(w, here, here + length)

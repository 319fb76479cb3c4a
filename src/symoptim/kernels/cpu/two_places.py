# pyright: basic
"""Long rows on AMD's Zen, without momentum: a dozen are read before any is moved, from two places in turn.

Memory that has to stop takes a while to start again, and two arrays alone do not keep it busy. So rows of the
first half of a matrix and of the second are looked at together, a piece of each in turn, as many as fit the
second cache, and are moved from there.
"""

import numpy as np

from symoptim.kernels.cpu.compiled import inlined, njit
from symoptim.kernels.cpu.filters import move
from symoptim.kernels.cpu.machine import FAR, TURN, ZEN
from symoptim.kernels.cpu.sphere import coefficients, divide, products_of_two
from symoptim.kernels.numbers import DECAY, NEW, RATE, SIGN


@njit
def rows_at_once(size):
    """How many rows of so many bytes, gradient included, are read before any is moved; none elsewhere."""
    return FAR // size if ZEN and size <= FAR // 2 else 0


@inlined
def _on_the_sphere(w, products, number):
    ww, wg, gg = products
    a, b, _, _, is_unit = coefficients(w, (ww, wg, 0.0, number[NEW] * number[NEW] * gg), number)
    return a, b, is_unit


@inlined
def _in_the_metric(_w, products, number):
    slope = number[NEW] * number[SIGN] * products[0]
    return 1 - number[RATE] * number[DECAY], -number[RATE] * slope, True


def _made(steps):
    @njit
    def rows_of_two_places(w, g, length, together, number):
        """Step rows, so many of each half at a time; a last one may be its own neighbor."""
        half = (w.size // length + 1) // 2 * length
        found = np.empty((2, together, 3))
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
                # All are kept, so that gradients are read even where only weights are asked for.
                found[0, row, 0], found[0, row, 1], found[0, row, 2] = ww, wg, gg
                found[1, row, 0], found[1, row, 1], found[1, row, 2] = xx, xy, yy
            for place in range(2):
                begin, end = first + place * half, min(last + place * half, w.size)
                for row, here in enumerate(range(begin, end, length)):
                    products = found[place, row, 0], found[place, row, 1], found[place, row, 2]
                    a, b, is_unit = steps(w, products, number)
                    move(w, g, here, here + length, a, b)
                    if not is_unit:
                        divide(w, here, here + length)

    return rows_of_two_places


unit_rows_of_two_places = _made(_on_the_sphere)
scaled_rows_of_two_places = _made(_in_the_metric)

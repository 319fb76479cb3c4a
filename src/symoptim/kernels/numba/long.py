# pyright: basic
"""Steps of long rows on the unit sphere: looked at twice, the second time where the first has left them.

A row is moved from its end, which has been read last. With momentum, unless it is Nesterov's, the buffer
takes the gradient up at the first look, so that the second is at two arrays instead of three: a tenth of a
step.

On AMD's Zen a row that does not fit the first cache is read together with others before any is moved, about
as many as fit half of the second, because memory that has to stop takes a while to start again: a twentieth.
These others are of two or three parts of the matrix, a short piece of each in turn, which is another. Rows of
which not even two fit there are taken one by one.
"""

import numpy as np

from symoptim.kernels.numba.compiled import inlined, njit
from symoptim.kernels.numba.filters import BLOCK, move
from symoptim.kernels.numba.machine import FAR, NEAR, ZEN
from symoptim.kernels.numba.sphere import (
    coefficients,
    divide,
    move_both,
    move_with_three,
    products_of_three,
    products_of_two,
    take_up,
)
from symoptim.kernels.numbers import MOMENTUM, NEW, OLD, SIGN

PIECE = 1024
"""Entries of a row that is moved from its end which are moved in order."""

# Places that take turns, and entries that make a turn. On a Zen 4, November 2026, in multiples of a step of
# SGD, rows of 16,384 and of 4,608 entries took 1.16 and 1.16 without momentum, 1.16 and 1.17 with; in one
# place 1.28 and 1.2, 1.21 and 1.19. Turns of 96 or 256 entries, or four places, lose a twentieth in some.
# Of two arrays, weights and gradients, and of three, with momentum:
PLACES_OF_TWO, TURN_OF_TWO = 3, 192
PLACES_OF_THREE, TURN_OF_THREE = 2, 128


# Rows without a buffer, with one that takes the gradient up, and with one that does not, have the same loops,
# which are compiled for each: to ask in every piece what there is takes up to a fifteenth of a step.
@inlined
def _products_of_two(w, g, _m, begin, end, number):
    ww, wg, gg = products_of_two(w, g, begin, end)
    return ww, wg, 0.0, number[NEW] * number[NEW] * gg


@inlined
def _move_two(w, g, _m, begin, end, by, _number):
    move(w, g, begin, end, by[0], by[1])


@inlined
def _take_up(w, g, m, begin, end, number):
    """The buffer has the place of the gradient then."""
    ww, wm, mm = take_up(w, g, m, begin, end, number[MOMENTUM], number[SIGN])
    return ww, number[SIGN] * wm, 0.0, number[NEW] * number[NEW] * mm


@inlined
def _move_both(w, _g, m, begin, end, by, number):
    move_both(w, m, begin, end, by[0], by[1] * number[SIGN], by[3])


@inlined
def _products_of_three(w, g, m, begin, end, number):
    return products_of_three(w, g, m, begin, end, number[OLD], number[NEW] * number[SIGN])


@inlined
def _move_three(w, g, m, begin, end, by, number):
    move_with_three(w, g, m, begin, end, by[0], by[1], by[2], number[MOMENTUM], number[SIGN], by[3])


def _one_by_one(products, step):
    @njit
    def near_rows(w, g, m, length, number):
        """Step rows, each moved from its end."""
        for row in range(0, w.size, length):
            ww = wg = wm = dd = 0.0
            end = row + length
            for begin in range(row, end, BLOCK):
                one, two, three, four = products(w, g, m, begin, min(begin + BLOCK, end), number)
                ww, wg, wm, dd = ww + one, wg + two, wm + three, dd + four
            by = coefficients(w, (ww, wg, wm, dd), number)
            for begin in range(row + (length - 1) // PIECE * PIECE, row - 1, -PIECE):
                step(w, g, m, begin, min(begin + PIECE, end), by, number)
            if not by[4]:
                divide(w, row, end)

    return near_rows


def _in_turn(products, step, places, turn):
    @njit
    def far_rows(w, g, m, length, together, number):
        """Step rows, so many of every part of the matrix at a time; the last part may have fewer."""
        part = (w.size // length + places - 1) // places * length
        sums, found = np.empty((places, 4)), np.empty((places, together, 5))
        for first in range(0, part, together * length):
            last = min(first + together * length, part)
            for row, here in enumerate(range(first, last, length)):
                sums[:] = 0
                for start in range(here, here + length, turn):
                    stop = min(start + turn, here + length)
                    for place, there in enumerate(range(0, w.size - here, part)):
                        one, two, three, four = products(w, g, m, start + there, stop + there, number)
                        sums[place, 0] += one
                        sums[place, 1] += two
                        sums[place, 2] += three
                        sums[place, 3] += four
                for place in range((w.size - here - 1) // part + 1):
                    _note(found[place, row], coefficients(w, sums[place], number))
            for place, there in enumerate(range(0, w.size - first, part)):
                for row, here in enumerate(range(first + there, min(last + there, w.size), length)):
                    step(w, g, m, here, here + length, found[place, row], number)
                    if not found[place, row, 4]:
                        divide(w, here, here + length)

    return far_rows


@inlined
def _note(found, by):
    found[0], found[1], found[2], found[3], found[4] = by


near_rows_of_two = _one_by_one(_products_of_two, _move_two)
near_rows_taken_up = _one_by_one(_take_up, _move_both)
near_rows_of_three = _one_by_one(_products_of_three, _move_three)
far_rows_of_two = _in_turn(_products_of_two, _move_two, PLACES_OF_TWO, TURN_OF_TWO)
far_rows_taken_up = _in_turn(_take_up, _move_both, PLACES_OF_THREE, TURN_OF_THREE)
far_rows_of_three = _in_turn(_products_of_three, _move_three, PLACES_OF_THREE, TURN_OF_THREE)


@inlined
def _rows_at_once(size, places):
    """Rows of so many bytes, buffers included, that are read in every place before any is moved; or none.

    Rounded up: the second cache has room for twice as many.
    """
    return (FAR // size + places - 1) // places if ZEN and NEAR < size <= FAR // 2 else 0


@njit
def long_rows(w, g, m, length, number):
    """Step rows of that length on the unit sphere, in the way that is fastest here."""
    arrays, places = (3, PLACES_OF_THREE) if m.size else (2, PLACES_OF_TWO)
    together = _rows_at_once(length * w.itemsize * arrays, places)
    # What moves a row is what the buffer will be, but for the part along the row.
    takes_up = number[OLD] == number[MOMENTUM] * number[NEW]
    if m.size == 0 and together:
        far_rows_of_two(w, g, m, length, together, number)
    elif m.size == 0:
        near_rows_of_two(w, g, m, length, number)
    elif takes_up and together:
        far_rows_taken_up(w, g, m, length, together, number)
    elif takes_up:
        near_rows_taken_up(w, g, m, length, number)
    elif together:
        far_rows_of_three(w, g, m, length, together, number)
    else:
        near_rows_of_three(w, g, m, length, number)

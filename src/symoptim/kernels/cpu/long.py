# pyright: basic
"""Steps of long rows on the unit sphere: looked at twice, the second time where the first has left them.

A row is moved from its end, which has been read last. With momentum, unless it is Nesterov's, the buffer
takes the gradient up at the first look, so that the second is at two arrays instead of three: a tenth of a
step.

On AMD's Zen a row that does not fit the first cache is read together with others before any is moved, as many
as fit the second, because memory that has to stop takes a while to start again: a twentieth. Without momentum
these others are of two places (:mod:`.two_places`), which is another. Rows of which not even two fit the
second cache are taken one by one.
"""

import numpy as np

from symoptim.kernels.cpu.compiled import inlined, njit
from symoptim.kernels.cpu.filters import BLOCK, move
from symoptim.kernels.cpu.machine import NEAR
from symoptim.kernels.cpu.sphere import (
    coefficients,
    divide,
    move_both,
    move_with_three,
    products_of_three,
    products_of_two,
    take_up,
)
from symoptim.kernels.cpu.two_places import rows_at_once, unit_rows_of_two_places
from symoptim.kernels.numbers import MOMENTUM, NEW, OLD, SIGN

PIECE = 1024
"""Entries of a row that is moved from its end which are moved in order."""


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


def _together(products, step):
    @njit
    def far_rows(w, g, m, length, together, number):
        """Step rows, so many at a time."""
        found = np.empty((together, 5))
        for first in range(0, w.size, together * length):
            last = min(first + together * length, w.size)
            for row, begin in enumerate(range(first, last, length)):
                ww = wg = wm = dd = 0.0
                end = begin + length
                for start in range(begin, end, BLOCK):
                    one, two, three, four = products(w, g, m, start, min(start + BLOCK, end), number)
                    ww, wg, wm, dd = ww + one, wg + two, wm + three, dd + four
                a, b, c, f, is_unit = coefficients(w, (ww, wg, wm, dd), number)
                found[row, 0], found[row, 1], found[row, 2], found[row, 3], found[row, 4] = (
                    a,
                    b,
                    c,
                    f,
                    is_unit,
                )
            for row, begin in enumerate(range(first, last, length)):
                step(w, g, m, begin, begin + length, found[row], number)
                if not found[row, 4]:
                    divide(w, begin, begin + length)

    return far_rows


near_rows_of_two = _one_by_one(_products_of_two, _move_two)
near_rows_taken_up = _one_by_one(_take_up, _move_both)
near_rows_of_three = _one_by_one(_products_of_three, _move_three)
far_rows_taken_up = _together(_take_up, _move_both)
far_rows_of_three = _together(_products_of_three, _move_three)


@njit
def long_rows(w, g, m, length, number):
    """Step rows of that length on the unit sphere, in the way that is fastest here."""
    size = length * w.itemsize * (3 if m.size else 2)
    together = rows_at_once(size) if size > NEAR else 0
    # What moves a row is what the buffer will be, but for the part along the row.
    takes_up = number[OLD] == number[MOMENTUM] * number[NEW]
    if m.size == 0 and together:
        unit_rows_of_two_places(w, g, length, together // 2, number)
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

# pyright: basic
"""Steps in the scaled metric of rows that follow each other in memory.

While a row is stepped the squared norm of the next is taken, a chunk of each in turn. Otherwise memory would
be asked for one thing at a time, first for weights and then for gradients, and would take a fifth longer.

AMD's Zen reads slowly what is partly in the second cache and partly in memory. There rows are stepped one by
one while they fit the first cache well; of longer ones some megabytes are summed, so that their weights come
from the third cache when they are stepped, and rows of three places take turns. Of 4,608 entries a step takes
1.03 times one of SGD then, of 16,384 as well, with momentum 0.96; one by one 1.1 and 1.3 (November 2026).
"""

import numpy as np

from symoptim.kernels.numba.compiled import inlined, narrow, njit
from symoptim.kernels.numba.filters import BLOCK, move, move_with_buffer
from symoptim.kernels.numba.machine import FAR, NEAR, ZEN
from symoptim.kernels.numbers import DECAY, MOMENTUM, NEW, OLD, RATE, SIGN

CHUNK = 256  # entries, summed in their own precision; 128 to 512 are equally fast, 1024 a tenth slower

PLACES, PIECE = 3, 128  # rows that take turns on AMD's Zen, and entries that make a turn
GROUP = 8 * FAR  # bytes of weights, at most, that are summed before any is stepped; half of that is as fast


@inlined
def _square(w, begin, end):
    narrow()
    square = w.dtype.type(0)
    for i in range(np.uintp(begin), np.uintp(end)):
        square += w[i] * w[i]
    return square


@njit
def _one_by_one(w, g, m, length, number):
    rate, sign = number[RATE], number[SIGN]
    a, c, d = 1 - rate * number[DECAY], -rate * number[OLD], number[MOMENTUM]
    for row in range(0, w.size, length):
        end, square = row + length, 0.0
        for begin in range(row, end, BLOCK):
            square += _square(w, begin, min(begin + BLOCK, end))
        if m.size:
            b, e = -rate * number[NEW] * sign * square, sign * square
            move_with_buffer(w, g, m, row, end, a, b, c, d, e)
        else:
            move(w, g, row, end, a, -rate * number[NEW] * sign * square)


@njit
def _in_turn(w, g, m, length, number):
    rate, sign = number[RATE], number[SIGN]
    a, c, d = 1 - rate * number[DECAY], -rate * number[OLD], number[MOMENTUM]
    ahead = 0.0
    for begin in range(0, length, CHUNK):
        ahead += _square(w, begin, min(begin + CHUNK, length))
    for row in range(0, w.size, length):
        b, e = -rate * number[NEW] * sign * ahead, sign * ahead
        ahead, is_last = 0.0, row + length == w.size
        for begin in range(row, row + length, CHUNK):
            end = min(begin + CHUNK, row + length)
            if m.size:
                move_with_buffer(w, g, m, begin, end, a, b, c, d, e)
            else:
                move(w, g, begin, end, a, b)
            if not is_last:
                ahead += _square(w, begin + length, end + length)


@njit
def _sum_group(w, length, part, first, last, squares):
    """Squared norms of the rows from ``first`` to ``last`` of every part, a piece of each part in turn."""
    squares[:] = 0
    for row, here in enumerate(range(first, last, length)):
        for start in range(here, here + length, PIECE):
            stop = min(start + PIECE, here + length)
            for place, there in enumerate(range(0, w.size - here, part)):
                squares[place, row] += _square(w, start + there, stop + there)


@njit
def _move_group(w, g, m, length, part, first, last, squares, number):
    """Step them likewise."""
    rate, sign = number[RATE], number[SIGN]
    a, c, d = 1 - rate * number[DECAY], -rate * number[OLD], number[MOMENTUM]
    for row, here in enumerate(range(first, last, length)):
        for start in range(here, here + length, PIECE):
            stop = min(start + PIECE, here + length)
            for place, there in enumerate(range(0, w.size - here, part)):
                e = sign * squares[place, row]
                b = -rate * number[NEW] * e
                if m.size:
                    move_with_buffer(w, g, m, start + there, stop + there, a, b, c, d, e)
                else:
                    move(w, g, start + there, stop + there, a, b)


@njit
def _in_groups(w, g, m, length, number):
    rows = (w.size // length + PLACES - 1) // PLACES
    groups = rows * length * w.itemsize * PLACES // GROUP + 1
    part, together = rows * length, (rows + groups - 1) // groups * length
    squares = np.empty((PLACES, together // length))
    for first in range(0, part, together):
        last = min(first + together, part)
        _sum_group(w, length, part, first, last, squares)
        _move_group(w, g, m, length, part, first, last, squares, number)


@njit
def scaled_rows(w, g, m, length, number):
    """Step rows of that length, in the way that is fastest here."""
    if not ZEN:
        _in_turn(w, g, m, length, number)
    elif 2 * length * w.itemsize <= NEAR:
        _one_by_one(w, g, m, length, number)
    else:
        _in_groups(w, g, m, length, number)

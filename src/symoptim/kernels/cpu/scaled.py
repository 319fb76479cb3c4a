# pyright: basic
"""Steps in the scaled metric of rows that follow each other in memory.

While a row is stepped the squared norm of the next is taken, a chunk of each in turn. Otherwise memory would
be asked for one thing at a time, first for weights and then for gradients, and would take a fifth longer. On
AMD's Zen rows are stepped one by one, and without momentum those that take up most of the first cache as in
:mod:`.two_places`: of 16,384 entries a step takes 1.15 times one of SGD then, and 1.24 in turn.
"""

import numpy as np

from symoptim.kernels.cpu.compiled import narrow, njit
from symoptim.kernels.cpu.filters import BLOCK, move, move_with_buffer
from symoptim.kernels.cpu.machine import NEAR, ZEN
from symoptim.kernels.cpu.two_places import rows_at_once, scaled_rows_of_two_places
from symoptim.kernels.numbers import DECAY, MOMENTUM, NEW, OLD, RATE, SIGN

CHUNK = 256  # entries, summed in their own precision; 128 to 512 are equally fast, 1024 a tenth slower


@njit
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
def scaled_rows(w, g, m, length, number):
    """Step rows of that length, in the way that is fastest here."""
    size = length * w.itemsize
    # Rows of 4,608 entries (float32) are faster one by one, of 5,760 as fast, of 6,912 slower.
    together = rows_at_once(2 * size) if m.size == 0 and size > NEAR * 5 // 8 else 0
    if together:
        scaled_rows_of_two_places(w, g, length, together // 2, number)
    elif ZEN and size <= NEAR:
        _one_by_one(w, g, m, length, number)
    else:
        _in_turn(w, g, m, length, number)

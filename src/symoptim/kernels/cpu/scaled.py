# pyright: basic
"""Steps in the scaled metric of rows that follow each other in memory.

While a row is stepped the squared norm of the next is taken, a chunk of each in turn. Otherwise memory would
be asked for one thing at a time, first for weights and then for gradients, and would take a fifth longer.
"""

import numpy as np

from symoptim.kernels.cpu.compiled import narrow, njit
from symoptim.kernels.cpu.filters import move, move_with_buffer
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
def scaled_rows(w, g, m, length, number):
    """Step rows of that length."""
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

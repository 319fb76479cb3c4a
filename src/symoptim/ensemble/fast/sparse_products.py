# pyright: basic
"""Products with sparse images, compiled by numba: only pixels that are not zero are read.

Images come in CSR format (:class:`.sparse_images.SparseImages`), filters with their inputs first,
``(r, i, o)``, so that the factors of a pixel are contiguous. A row of up to 64 entries stays in registers
while others are added to it. numba has no types.

Axis letters: r run, s row of images that some runs share, o filter, i input, b example.
"""

import math

import numpy as np

from symoptim.kernels.numba.jit import SOURCES, inlined, kernel, narrow, njit
from symoptim.kernels.numba.vectors import add_rows, fetch

EXAMPLES_AT_ONCE = 128  # their responses stay in the cache until they are transposed


@njit
def _fetch_next(starts, columns, values, images, b):
    """Prefetch the CSR row of the image after b: images are anywhere in memory."""
    if b + 1 < images.size:
        n = images[b + 1]
        for k in range(starts[n], starts[n + 1], 16):
            fetch(np.int64(columns.ctypes.data) + k * columns.itemsize)
            fetch(np.int64(values.ctypes.data) + k * values.itemsize)


@inlined
def _add_all(out, table, indices, factors, first, last):
    """Add rows of a table ``(n, o)`` to a row ``(o,)``; o is a multiple of 8."""
    narrow()
    here, there = np.int64(out.ctypes.data), np.int64(table.ctypes.data)
    p, f = np.int64(indices.ctypes.data), np.int64(factors.ctypes.data)
    end = here + out.size * out.itemsize
    while here + 64 * out.itemsize <= end:
        add_rows(here, there, p, f, first, last, out.size, out, 64)
        here, there = here + 64 * out.itemsize, there + 64 * out.itemsize
    while here < end:
        add_rows(here, there, p, f, first, last, out.size, out, 8)
        here, there = here + 8 * out.itemsize, there + 8 * out.itemsize


def _respond(sources):
    @kernel
    def respond(filters, starts, columns, values, index, runs_per_row, responses):
        """Responses ``(r, o, b)`` of filters ``(r, i, o)`` to the images at ``index`` ``(s, b)``.

        ``runs_per_row`` neighboring runs have the same images; after the last row comes the first again.
        """
        if not sources:
            return
        count, width = index.shape[1], filters.shape[2]
        rows = np.empty((min(count, EXAMPLES_AT_ONCE), width), filters.dtype)
        for r in range(filters.shape[0]):
            images, found = index[r // runs_per_row % index.shape[0]], responses[r]
            for begin in range(0, count, EXAMPLES_AT_ONCE):
                here = min(EXAMPLES_AT_ONCE, count - begin)
                rows[:here] = 0
                for b in range(here):
                    n = images[begin + b]
                    _fetch_next(starts, columns, values, images, begin + b)
                    _add_all(rows[b], filters[r], columns, values, starts[n], starts[n + 1])
                for o in range(width):
                    for b in range(here):
                        found[o, begin + b] = rows[b, o]

    return respond


@njit
def _transpose(starts, columns, values, images, counts, examples, amounts):
    """By pixel: how many images are nonzero there; in its row of two tables, their numbers and values."""
    counts[:] = 0
    for b in range(images.size):
        _fetch_next(starts, columns, values, images, b)
        for k in range(starts[images[b]], starts[images[b] + 1]):
            pixel = np.uint64(columns[k])
            slot = np.uint64(counts[pixel])
            examples[pixel, slot], amounts[pixel, slot] = b, values[k]
            counts[pixel] += 1


def _add(sources):
    @kernel
    def add(filters, starts, columns, values, index, runs_per_row, changes, sign):
        """Add ``sign`` times the product of changes ``(r, o, b)`` and images to filters ``(r, i, o)``.

        ``runs_per_row`` neighboring runs have the same images.
        """
        if not sources:
            return
        inputs, (width, count) = filters.shape[1], changes.shape[1:]
        rows, factor = np.empty((count, width), changes.dtype), changes.dtype.type(sign)
        counts = np.empty(inputs, np.int32)
        examples, amounts = np.empty((inputs, count), np.int32), np.empty((inputs, count), values.dtype)
        for r in range(filters.shape[0]):
            if r % runs_per_row == 0:
                _transpose(starts, columns, values, index[r // runs_per_row], counts, examples, amounts)
            for b in range(count):
                for o in range(width):
                    rows[b, o] = factor * changes[r, o, b]
            for i in range(inputs):
                if counts[i]:
                    _add_all(filters[r, i], rows, examples[i], amounts[i], 0, counts[i])

    return add


# A cached kernel is valid for these sources: numba looks at no other file than this one.
respond, add = _respond(SOURCES), _add(SOURCES)


@inlined
def _sum_squares(filters, part, totals):
    """Squared lengths ``(o,)`` of filters ``(i, o)``; sums of 64 inputs are added in float64."""
    totals[:] = 0
    for first in range(0, filters.shape[0], 64):
        part[:] = 0
        for i in range(first, min(first + 64, filters.shape[0])):
            row = filters[i]
            for o in range(row.size):
                part[o] += row[o] * row[o]
        totals += part


@kernel
def square(filters, squares):
    """Squared lengths ``(r, o)`` of filters ``(r, i, o)``."""
    part, totals = np.empty(filters.shape[2], filters.dtype), np.empty(filters.shape[2])
    for r in range(filters.shape[0]):
        _sum_squares(filters[r], part, totals)
        squares[r] = totals


@inlined
def _multiply(row, factors):
    for o in range(row.size):
        row[o] *= factors[o]


@kernel
def make_unit(filters, signs):
    """Bring filters ``(r, i, o)`` to length one, and negate those whose sign ``(r, o)`` is negative."""
    factors, totals = np.empty(filters.shape[2], filters.dtype), np.empty(filters.shape[2])
    for r in range(filters.shape[0]):
        _sum_squares(filters[r], factors, totals)
        for o in range(factors.size):
            factors[o] = math.copysign(1.0 / math.sqrt(totals[o]), signs[r, o])
        for i in range(filters.shape[1]):
            _multiply(filters[r, i], factors)

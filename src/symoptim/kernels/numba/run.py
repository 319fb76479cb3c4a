# pyright: basic
"""The kernel of steps: all tensors of a table, stretch by stretch."""

from symoptim.kernels.numba.apart import apart
from symoptim.kernels.numba.compiled import SOURCES, array_at, kernel
from symoptim.kernels.numba.factored import factored_rows
from symoptim.kernels.numba.filters import linear
from symoptim.kernels.numba.long import long_rows
from symoptim.kernels.numba.scaled import scaled_rows
from symoptim.kernels.numba.short import SHORT, short_rows
from symoptim.kernels.table import (
    BUFFER,
    COLUMNS,
    COUNT,
    GRADIENT,
    GROUP,
    INNER,
    KIND,
    OUTER,
    PLAIN,
    ROWS,
    SCALED,
    TWICE,
    UNIT,
    WEIGHTS,
)


def _made(sources):
    @kernel
    def run(stretches, table, numbers, like):
        """Step stretches ``(tensor, first, last)``: filters, or entries where the update is plain.

        ``numbers`` has a row per group; ``like`` is an array of the precision of the weights.
        """
        if not sources:
            return
        for k in range(stretches.shape[0]):
            about, first, last = table[stretches[k, 0]], stretches[k, 1], stretches[k, 2]
            outer, count, inner = about[OUTER], about[COUNT], about[INNER]
            kind, number = about[KIND], numbers[about[GROUP]]
            size = outer * count * inner
            w = array_at(about[WEIGHTS], size, like)
            g = array_at(about[GRADIENT], size, like)
            m = array_at(about[BUFFER], size, like)
            if kind == PLAIN and about[COLUMNS] == 0:
                linear(w[first:last], g[first:last], m[first:last], 1.0, number)
            elif outer > 1:
                here, end = first * inner, size - (count - last) * inner
                width = (last - first) * inner
                apart(w[here:end], g[here:end], m[here:end], count * inner, width, inner, kind, number)
            elif kind != PLAIN and inner <= SHORT:
                here, end = first * inner, last * inner
                short_rows(w[here:end], g[here:end], m[here:end], inner, kind == SCALED, number)
            elif kind == SCALED:
                here, end = first * inner, last * inner
                scaled_rows(w[here:end], g[here:end], m[here:end], inner, number)
            elif kind == UNIT:
                here, end = first * inner, last * inner
                long_rows(w[here:end], g[here:end], m[here:end], inner, number)
            else:
                rows = array_at(about[ROWS], count, like)
                columns, twice = array_at(about[COLUMNS], inner, like), about[TWICE] != 0
                here, end = first * inner, last * inner
                factored_rows(
                    w[here:end], g[here:end], m[here:end], inner, rows[first:last], columns, twice, number
                )

    return run


run = _made(SOURCES)

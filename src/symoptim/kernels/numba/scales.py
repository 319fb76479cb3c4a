# pyright: basic
"""What lies between the norms and the factors of the full metric, exponentials and logarithms aside.

torch's exponentials are vectorized, numba's are not; of gathers and sums torch makes a pass over memory each.
"""

import numpy as np

from symoptim.kernels.numba.jit import kernel


@kernel
def inverse_scales(log_scales, positions, starts, largest, out):
    """Write minus the log-scales at some positions, less the largest of each stretch, and the largest."""
    for part in range(starts.size - 1):
        top = log_scales.dtype.type(-np.inf)
        for i in range(starts[part], starts[part + 1]):
            out[i] = -log_scales[positions[i]]
            top = max(top, out[i])
        if starts[part] < starts[part + 1]:
            largest[part] = top
        for i in range(starts[part], starts[part + 1]):
            out[i] -= top


@kernel
def center(norms, chosen, log_scales, positions, unit, largest, out):
    """Write twice the logarithms of norms with their own scales divided out, less the largest of each unit.

    What has come to nothing has no logarithm: its unit has the size that is not a disaster, one.
    """
    largest[:] = -np.inf
    for i in range(out.size):
        out[i] = norms[chosen[i]] - log_scales[positions[i]]
        largest[unit[i]] = max(largest[unit[i]], out[i])
    for u in range(largest.size):
        if largest[u] == -np.inf:
            largest[u] = 0
    for i in range(out.size):
        out[i] = 2 * (out[i] - largest[unit[i]])


@kernel
def average(squares, unit, weight, mean):
    """Write the means of squares by unit; one for zero."""
    mean[:] = 0
    for i in range(squares.size):
        mean[unit[i]] += squares[i]
    for u in range(mean.size):
        mean[u] *= weight[u]
        if mean[u] == 0:
            mean[u] = 1


@kernel
def resolve(largest, log_mean, exponents, generators, rows, columns, values, sizes, log_scales):
    """Write the sizes of units, and add what becomes known to the log-scales."""
    for u in range(largest.size):
        sizes[generators[u]] = (largest[u] + log_mean[u] / 2) / exponents[u]
    for k in range(rows.size):
        log_scales[rows[k]] += values[k] * sizes[columns[k]]


@kernel
def log_sides(log_scales, places, weights, power, out):
    """Write the logarithms of factors; see :class:`symoptim.metric.factor_buffers.FactorBuffers`."""
    power = out.dtype.type(power)
    for i in range(out.size):
        moved = (log_scales[places[i, 1]] - log_scales[places[i, 2]]) / 2
        out[i] = power * (log_scales[places[i, 0]] * weights[i] + moved)

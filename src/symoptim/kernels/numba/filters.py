# pyright: basic
r"""Steps of filters that lie in one piece: read, two numbers found, written while they are near.

Of a filter w with gradient g and momentum b, with :math:`a = 1 / |w|` (1 where w is of unit norm already) and
the numbers of :mod:`symoptim.kernels.numbers`:

.. math::
    \text{scaled:} \quad b' &= \mu b + |w|^2 g, &
    w' &= (1 - r \lambda) w - r (\alpha b + \beta |w|^2 g) \\
    \text{unit:} \quad b' &= \mu b + g - (\mu c_b + c_g) w, &
    w' &\propto (a + r (\alpha c_b + \beta c_g)) w - r (\alpha b + \beta g), \quad
    c_x = a^2 \langle w, x\rangle

so that both are sums of w, g and b with coefficients that hold for the whole filter. The norm of the new
filter follows from the same sums, without another look, unless the step is so long that they would cancel.
"""

import math

import numpy as np

from symoptim.kernels.numba.compiled import narrow, njit
from symoptim.kernels.numbers import DECAY, MOMENTUM, NEW, OLD, RATE, SIGN

BLOCK = 2048  # entries summed in their own precision; sums of blocks are float64, for long filters
SAFE = 0.25  # squared length of a step up to which sums do not cancel
SMALL = 1e-30  # squares up to which float32 has few digits left


# Positions are unsigned: numba would look whether others are counted from the end.
@njit
def move(w, g, begin, end, a, b):
    """``w = a w + b g``, from one position to another."""
    narrow()
    a, b = w.dtype.type(a), w.dtype.type(b)
    for i in range(np.uintp(begin), np.uintp(end)):
        w[i] = a * w[i] + b * g[i]


@njit
def move_with_buffer(w, g, m, begin, end, a, b, c, d, e):
    """``w = a w + b g + c m`` and ``m = d m + e g``, of what they were."""
    narrow()
    a, b, c = w.dtype.type(a), w.dtype.type(b), w.dtype.type(c)
    d, e = w.dtype.type(d), w.dtype.type(e)
    for i in range(np.uintp(begin), np.uintp(end)):
        y, z = g[i], m[i]
        m[i] = d * z + e * y
        w[i] = a * w[i] + b * y + c * z


@njit
def inverse_norm(ww, dtype_like):
    """One over the norm, or one where the norm is that to within four rounding steps."""
    norm = math.sqrt(ww)
    return 1.0 if abs(norm - 1) <= 4 * np.finfo(dtype_like.dtype).eps else 1 / norm


@njit
def linear(w, g, m, square, number):
    """Step along the gradient times a number."""
    rate, slope = number[RATE], number[SIGN] * square
    a, b = 1 - rate * number[DECAY], -rate * number[NEW] * slope
    if m.size:
        move_with_buffer(w, g, m, 0, w.size, a, b, -rate * number[OLD], number[MOMENTUM], slope)
    else:
        move(w, g, 0, w.size, a, b)

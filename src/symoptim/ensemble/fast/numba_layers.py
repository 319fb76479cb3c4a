# pyright: basic
"""Hidden layers and rows of filters on a CPU, compiled by numba: a pair is computed while it is in the cache.

Formulas are those of :mod:`.hidden_layer` and :mod:`.factored_gradient`. A layer without normalization comes
with gamma and scale one, beta and shift zero. numba has no types.
"""

import math

from symoptim.kernels.numba.jit import inlined, kernel


@inlined
def _centered(h):
    """Mean, and the sum of squares around it."""
    total = squares = h.dtype.type(0)
    for i in range(h.size):
        total += h[i]
    mean = total / h.dtype.type(h.size)
    for i in range(h.size):
        squares += (h[i] - mean) * (h[i] - mean)
    return mean, squares


@kernel
def normalize(h, mean, variance, shift, scale, eps, momentum):
    """Shift and scale of all features ``(r, o)`` from responses ``(r, o, b)``; running averages follow."""
    count = h.shape[2]
    for r in range(h.shape[0]):
        for o in range(h.shape[1]):
            shift[r, o], squares = _centered(h[r, o])
            scale[r, o] = 1.0 / math.sqrt(squares / count + eps)
            mean[r, o] += momentum * (shift[r, o] - mean[r, o])
            variance[r, o] += momentum * (squares / (count - 1) - variance[r, o])


@inlined
def _pool_pair(left, right, numbers, pooled):
    shift_left, stretch_left, beta_left, shift_right, stretch_right, beta_right = numbers
    zero = left.dtype.type(0)
    for i in range(pooled.size):
        a = (left[i] - shift_left) * stretch_left + beta_left
        b = (right[i] - shift_right) * stretch_right + beta_right
        larger = a if (a > b) | (a != a) else b
        pooled[i] = zero if larger < zero else larger  # NaN stays


@inlined
def _numbers(gamma, beta, shift, scale, r, o):
    stretch = gamma[r, o] * scale[r, o], gamma[r, o + 1] * scale[r, o + 1]
    return shift[r, o], stretch[0], beta[r, o], shift[r, o + 1], stretch[1], beta[r, o + 1]


@kernel
def pool(h, gamma, beta, shift, scale, pooled):
    """Pooled features ``(r, o / 2, b)`` of responses ``(r, o, b)``."""
    for r in range(pooled.shape[0]):
        for j in range(pooled.shape[1]):
            numbers = _numbers(gamma, beta, shift, scale, r, 2 * j)
            _pool_pair(h[r, 2 * j], h[r, 2 * j + 1], numbers, pooled[r, j])


@inlined
def _share_pair(left, right, numbers, half, d_left, d_right):
    """Give the gradient of a pooled feature to the larger of its pair."""
    shift_left, stretch_left, beta_left, shift_right, stretch_right, beta_right = numbers
    zero, one, two = left.dtype.type(0), left.dtype.type(1), left.dtype.type(2)
    for i in range(half.size):
        a = (left[i] - shift_left) * stretch_left + beta_left
        b = (right[i] - shift_right) * stretch_right + beta_right
        x = half[i] if (a > zero) | (b > zero) else zero
        share = two if a > b else (one if a == b else zero)
        d_left[i] = x * share
        d_right[i] = x * (two - share)


@inlined
def _to_responses(h, d, shift, scale, gamma):
    """Turn the gradient of a normalized feature into that of its responses; those of gamma and beta."""
    d_beta = d_gamma = h.dtype.type(0)
    for i in range(h.size):
        d_beta += d[i]
        d_gamma += d[i] * (h[i] - shift)
    d_gamma *= scale
    count = h.dtype.type(h.size)
    along, mean, stretch = scale * d_gamma / count, d_beta / count, gamma * scale
    for i in range(h.size):
        d[i] = (d[i] - mean - (h[i] - shift) * along) * stretch
    return d_gamma, d_beta


@kernel
def share(h, half, gamma, beta, shift, scale, d):
    """Gradient of features ``(r, o, b)`` from half of that of pooled ones."""
    for r in range(half.shape[0]):
        for j in range(half.shape[1]):
            numbers = _numbers(gamma, beta, shift, scale, r, 2 * j)
            _share_pair(h[r, 2 * j], h[r, 2 * j + 1], numbers, half[r, j], d[r, 2 * j], d[r, 2 * j + 1])


@kernel
def to_responses(h, d, gamma, shift, scale, d_gamma, d_beta):
    """Turn the gradient of normalized features into that of responses, in place."""
    for r in range(h.shape[0]):
        for o in range(h.shape[1]):
            d_gamma[r, o], d_beta[r, o] = _to_responses(
                h[r, o], d[r, o], shift[r, o], scale[r, o], gamma[r, o]
            )


@kernel
def dots(u, v, found):
    """Inner products of rows, ``(r, o, b), (r, o, b) -> (r, o, 1)``."""
    for r in range(u.shape[0]):
        for o in range(u.shape[1]):
            x, y, total = u[r, o], v[r, o], u.dtype.type(0)
            for i in range(x.size):
                total += x[i] * y[i]
            found[r, o, 0] = total


@kernel
def make_unit(w, signs):
    """Bring rows ``(r, o, i)`` to length one, and negate those whose sign ``(r, o, 1)`` is negative."""
    for r in range(w.shape[0]):
        for o in range(w.shape[1]):
            row, total = w[r, o], w.dtype.type(0)
            for i in range(row.size):
                total += row[i] * row[i]
            factor = w.dtype.type(math.copysign(1.0 / math.sqrt(total), signs[r, o, 0]))
            for i in range(row.size):
                row[i] *= factor

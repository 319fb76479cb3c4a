"""Triton kernels of the hidden layers: one run a program, forward, and back to the gradient of the inputs.

Formulas are those of :mod:`symoptim.engine.pairwise`. The filters of a layer come as the left and the right
ones of its pairs, so that a pair is one place of two tiles. What the way back needs of the way forward it
computes again. Tiles are ``(j, b)``, j pair, b example; b is padded to ``B``, and padding is zero.
"""

# pyright: basic, reportMissingImports=false
import triton
import triton.language as tl

from symoptim.engine.fused.steps import stepped


@triton.jit
def centered(h, inside, count, eps):
    """Centered responses c, their mean, the sum of their squares, and sigma."""
    mean = tl.sum(h, 1) / count
    c = tl.where(inside, h - mean[:, None], 0.0)
    squares = tl.sum(c * c, 1)
    return c, mean, squares, 1.0 / tl.sqrt(squares / count + eps)


@triton.jit
def follow(averages, place, value, momentum):
    """Move a running average."""
    old = tl.load(averages + place)
    tl.store(averages + place, old + momentum * (value - old))


@triton.jit
def features_of(
    h, place, inside, count, gammas, betas, means, variances, eps, momentum, NORMED: tl.constexpr
):
    """Features of responses in training; running averages follow."""
    if NORMED:
        c, mean, squares, scale = centered(h, inside, count, eps)
        follow(means, place, mean, momentum)
        follow(variances, place, squares / (count - 1), momentum)
        a = c * (tl.load(gammas + place) * scale)[:, None] + tl.load(betas + place)[:, None]
        h = tl.where(inside, a, 0.0)
    return h


@triton.jit
def forward(
    previous, filters, responses, pooled, gammas, betas, means, variances, batches, count, eps, momentum,
    FIRST: tl.constexpr, NORMED: tl.constexpr, PAIRS: tl.constexpr, INPUTS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """A hidden layer of one run: responses, which are there for the first layer, and pooled features."""
    run = tl.program_id(0)
    pair, b = tl.arange(0, PAIRS), tl.arange(0, B)
    inside = b[None, :] < count
    even = run * 2 * PAIRS + 2 * pair
    at = even[:, None] * count + b[None, :]
    if FIRST:
        left = tl.load(responses + at, mask=inside, other=0.0)
        right = tl.load(responses + at + count, mask=inside, other=0.0)
    else:
        i = tl.arange(0, INPUTS)
        x = tl.load(previous + (run * INPUTS + i[:, None]) * count + b[None, :], mask=inside, other=0.0)
        rows = even[:, None] * INPUTS + i[None, :]
        left = tl.dot(tl.load(filters + rows), x, input_precision="ieee")
        right = tl.dot(tl.load(filters + rows + INPUTS), x, input_precision="ieee")
        tl.store(responses + at, left, mask=inside)
        tl.store(responses + at + count, right, mask=inside)
    left = features_of(left, even, inside, count, gammas, betas, means, variances, eps, momentum, NORMED)
    right = features_of(
        right, even + 1, inside, count, gammas, betas, means, variances, eps, momentum, NORMED
    )
    if NORMED:
        tl.store(batches + run, tl.load(batches + run) + 1)
    larger = tl.maximum(left, right, propagate_nan=tl.PropagateNan.ALL)
    p = tl.where(larger < 0, 0.0, larger)  # NaN stays
    tl.store(pooled + (run * PAIRS + pair[:, None]) * count + b[None, :], p, mask=inside)


@triton.jit
def responses_changed(c, scale, gamma, beta, change, place, inside, count, gammas, betas, rate):
    """From the gradient of normalized features to that of responses; gamma and beta step."""
    d_beta = tl.sum(change, 1)
    d_gamma = tl.sum(change * c, 1) * scale
    dh = (change - (d_beta / count)[:, None] - c * (scale * d_gamma / count)[:, None]) * (gamma * scale)[
        :, None
    ]
    tl.debug_barrier()  # every thread has read before one writes
    tl.store(gammas + place, gamma - rate * d_gamma)
    tl.store(betas + place, beta - rate * d_beta)
    return tl.where(inside, dh, 0.0)


@triton.jit
def backward(
    previous, filters, responses, changes, changes_before, lefts, gammas, betas, rates, kinds, count, eps,
    FIRST: tl.constexpr, NORMED: tl.constexpr, PAIRS: tl.constexpr, INPUTS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """A hidden layer of one run: the gradient of its inputs, and its step.

    Of the first layer, the gradient of the responses, for the large product that is left.
    """
    run = tl.program_id(0)
    rate, kind = tl.load(rates + run), tl.load(kinds + run)
    pair, b = tl.arange(0, PAIRS), tl.arange(0, B)
    inside = b[None, :] < count
    even = run * 2 * PAIRS + 2 * pair
    at = even[:, None] * count + b[None, :]
    left = tl.load(responses + at, mask=inside, other=0.0)
    right = tl.load(responses + at + count, mask=inside, other=0.0)
    pooled = (run * PAIRS + pair[:, None]) * count + b[None, :]
    change = tl.load(changes + pooled, mask=inside, other=0.0)
    a_left, a_right = left, right
    if NORMED:
        gamma_left, beta_left = tl.load(gammas + even), tl.load(betas + even)
        gamma_right, beta_right = tl.load(gammas + even + 1), tl.load(betas + even + 1)
        c_left, _, _, s_left = centered(left, inside, count, eps)
        c_right, _, _, s_right = centered(right, inside, count, eps)
        a_left = c_left * (gamma_left * s_left)[:, None] + beta_left[:, None]
        a_right = c_right * (gamma_right * s_right)[:, None] + beta_right[:, None]
    change = tl.where((a_left > 0) | (a_right > 0), change, 0.0)
    share = tl.where(a_left > a_right, 1.0, tl.where(a_left == a_right, 0.5, 0.0))
    d_left = change * share
    d_right = change - d_left
    if NORMED:
        d_left = responses_changed(
            c_left, s_left, gamma_left, beta_left, d_left, even, inside, count, gammas, betas, rate
        )
        d_right = responses_changed(
            c_right, s_right, gamma_right, beta_right, d_right, even + 1, inside, count, gammas, betas, rate
        )
    if FIRST:
        tl.store(lefts + at, d_left, mask=inside)
        tl.store(lefts + at + count, d_right, mask=inside)
    else:
        i = tl.arange(0, INPUTS)
        inputs = (run * INPUTS + i[:, None]) * count + b[None, :]
        x = tl.load(previous + inputs, mask=inside, other=0.0)
        rows = even[:, None] * INPUTS + i[None, :]
        w_left, w_right = tl.load(filters + rows), tl.load(filters + rows + INPUTS)
        back = tl.dot(tl.trans(w_left), d_left, input_precision="ieee")
        back += tl.dot(tl.trans(w_right), d_right, input_precision="ieee")
        tl.store(changes_before + inputs, back, mask=inside)
        g_left = tl.dot(d_left, tl.trans(x), input_precision="ieee")
        g_right = tl.dot(d_right, tl.trans(x), input_precision="ieee")
        tl.debug_barrier()  # every thread has read before one writes
        tl.store(filters + rows, stepped(w_left, g_left, rate, kind))
        tl.store(filters + rows + INPUTS, stepped(w_right, g_right, rate, kind))

"""Triton kernels of the hidden layers: some pairs of one run a program, forward, and back to the responses.

Formulas are those of :mod:`symoptim.ensemble.pairwise`. The filters of a layer come as the left and the right
ones of its pairs, so that a pair is one place of two tiles. What the way back needs of the way forward it
computes again. Tiles are ``(j, b)``, j pair, b example. Examples are padded to ``B`` in memory, too; padding
is zero. Products go over ``SOME`` places at a time: a tile at once would be more than the registers of a
program, and thousands of instructions to compile.
"""

# pyright: basic, reportMissingImports=false
import triton
import triton.language as tl

from symoptim.ensemble.fused.steps import stepped


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
    FIRST: tl.constexpr, NORMED: tl.constexpr, PAIRS: tl.constexpr, PART: tl.constexpr, INPUTS: tl.constexpr,
    B: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """Part of a hidden layer of one run: responses, which are there for the first, and pooled features."""
    run, part = tl.program_id(0), tl.program_id(1)
    pair, b = part * PART + tl.arange(0, PART), tl.arange(0, B)
    inside = b[None, :] < count
    even = run * 2 * PAIRS + 2 * pair
    at = even[:, None] * B + b[None, :]
    if FIRST:
        left, right = tl.load(responses + at), tl.load(responses + at + B)
    else:
        left, right = tl.zeros((PART, B), tl.float32), tl.zeros((PART, B), tl.float32)
        for start in range(0, INPUTS, SOME):
            i = start + tl.arange(0, SOME)
            x = tl.load(previous + (run * INPUTS + i[:, None]) * B + b[None, :])
            rows = even[:, None] * INPUTS + i[None, :]
            left = tl.dot(tl.load(filters + rows), x, left, input_precision="ieee")
            right = tl.dot(tl.load(filters + rows + INPUTS), x, right, input_precision="ieee")
        tl.store(responses + at, left)
        tl.store(responses + at + B, right)
    left = features_of(left, even, inside, count, gammas, betas, means, variances, eps, momentum, NORMED)
    right = features_of(
        right, even + 1, inside, count, gammas, betas, means, variances, eps, momentum, NORMED
    )
    if NORMED:
        tl.store(batches + run, tl.load(batches + run) + 1, mask=part == 0)
    larger = tl.maximum(left, right, propagate_nan=tl.PropagateNan.ALL)
    p = tl.where(larger < 0, 0.0, larger)  # NaN stays
    tl.store(pooled + (run * PAIRS + pair[:, None]) * B + b[None, :], p)


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
    responses, changes, lefts, gammas, betas, rates, count, eps,
    NORMED: tl.constexpr, PAIRS: tl.constexpr, PART: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Part of a hidden layer of one run: the gradient of its responses from that of its pooled features."""
    run, part = tl.program_id(0), tl.program_id(1)
    rate = tl.load(rates + run)
    pair, b = part * PART + tl.arange(0, PART), tl.arange(0, B)
    inside = b[None, :] < count
    even = run * 2 * PAIRS + 2 * pair
    at = even[:, None] * B + b[None, :]
    left, right = tl.load(responses + at), tl.load(responses + at + B)
    change = tl.load(changes + (run * PAIRS + pair[:, None]) * B + b[None, :])
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
    tl.store(lefts + at, d_left)
    tl.store(lefts + at + B, d_right)


@triton.jit
def step_hidden(
    previous, filters, lefts, changes, rates, kinds,
    FILTERS: tl.constexpr, INPUTS: tl.constexpr, B: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """A hidden layer of one run, not the first: the gradient of its inputs, and the step of its filters."""
    run = tl.program_id(0)
    row, i, b = tl.arange(0, FILTERS), tl.arange(0, INPUTS), tl.arange(0, B)
    inputs = (run * INPUTS + i[:, None]) * B
    weights = (run * FILTERS + row[:, None]) * INPUTS + i[None, :]
    back = tl.zeros((INPUTS, B), tl.float32)
    for start in range(0, FILTERS, SOME):
        some = run * FILTERS + start + tl.arange(0, SOME)
        w = tl.load(filters + some[:, None] * INPUTS + i[None, :])
        d = tl.load(lefts + some[:, None] * B + b[None, :])
        back = tl.dot(tl.trans(w), d, back, input_precision="ieee")
    tl.store(changes + inputs + b[None, :], back)
    g = tl.zeros((FILTERS, INPUTS), tl.float32)
    for start in range(0, B, SOME):
        some = start + tl.arange(0, SOME)
        d = tl.load(lefts + (run * FILTERS + row[:, None]) * B + some[None, :])
        x = tl.load(previous + inputs + some[None, :])
        g = tl.dot(d, tl.trans(x), g, input_precision="ieee")
    moved = stepped(tl.load(filters + weights), g, tl.load(rates + run), tl.load(kinds + run))
    tl.debug_barrier()  # every thread has read before one writes
    tl.store(filters + weights, moved)

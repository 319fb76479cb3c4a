"""Triton kernels of a step of the paper's networks: gather images, hidden layers, classifier, updates.

Formulas are those of :mod:`.hidden_layer`, :mod:`.closed_form` and :mod:`symoptim.updates.step`. A program
computes some pairs of one run; filters of a layer come as the left and the right ones of its pairs, so that a
pair is one position of two tiles. The backward kernels compute again what they need of the forward pass.
Products go over ``SOME`` positions at a time: a whole tile would be more than the registers of a program, and
thousands of instructions to compile.

Axis letters: r run, o row, i column, j pair, k class, b example. In memory, b is padded to ``B`` and k to
``CLASSES``, with zeros.
"""

# pyright: basic, reportMissingImports=false
import triton
import triton.language as tl

from symoptim.kernels import descriptor

SCALED = tl.constexpr(descriptor.SCALED)
UNIT_NORM = tl.constexpr(descriptor.UNIT_NORM)


@triton.jit
def take(images, labels, order, position, batch, targets, trained, count, pixels, PIXELS: tl.constexpr):
    """Copy image ``order[r, position + b]`` to ``batch[r, b]``, and its label; a program each."""
    run, b = tl.program_id(0), tl.program_id(1)
    offset = run * count + b
    number = tl.load(order + run * trained + tl.load(position) + b)
    tl.store(targets + offset, tl.load(labels + number))
    pixel = tl.arange(0, PIXELS)
    inside = pixel < pixels
    tl.store(
        batch + offset * pixels + pixel, tl.load(images + number * pixels + pixel, mask=inside), mask=inside
    )


@triton.jit
def stepped(w, g, rate, kind):
    """Rows ``w`` after a step with gradient ``g``, by the update of this run; tiles ``(o, i)``."""
    squared = tl.sum(w * w, 1)[:, None]
    parallel = tl.where(kind == UNIT_NORM, tl.sum(w * g, 1), 0.0)[:, None]
    moved = w - rate * tl.where(kind == SCALED, squared, 1.0) * (g - parallel * w)
    length = tl.sqrt(tl.sum(moved * moved, 1))[:, None]
    return moved / tl.where(kind == UNIT_NORM, length, 1.0)


@triton.jit
def step_rows(weights, gradients, rates, kinds, filters, inputs, ROWS: tl.constexpr, INPUTS: tl.constexpr):
    """Step ``ROWS`` filters of one run."""
    run, part = tl.program_id(0), tl.program_id(1)
    row, column = part * ROWS + tl.arange(0, ROWS), tl.arange(0, INPUTS)
    at = (run * filters + row[:, None]) * inputs + column[None, :]
    inside = (row[:, None] < filters) & (column[None, :] < inputs)
    w = tl.load(weights + at, mask=inside, other=0.0)
    g = tl.load(gradients + at, mask=inside, other=0.0)
    tl.store(weights + at, stepped(w, g, tl.load(rates + run), tl.load(kinds + run)), mask=inside)


@triton.jit
def classify(
    pooled, classifier, targets, errors, changes, rates, kinds, losses, wrongs, classes, count,
    PAIRS: tl.constexpr, CLASSES: tl.constexpr, B: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """Loss and wrong answers of one run, the gradient of its last features; the classifier steps.

    In between, the gradient of the scores is stored in ``errors`` ``(r, k, b)``.
    """
    run = tl.program_id(0)
    pair, b, k = tl.arange(0, PAIRS), tl.arange(0, B), tl.arange(0, CLASSES)
    inside, is_class = b < count, k[:, None] < classes
    rows = (run * classes + k[:, None]) * PAIRS
    scores = tl.zeros((CLASSES, B), tl.float32)
    for start in range(0, PAIRS, SOME):
        some = start + tl.arange(0, SOME)
        p = tl.load(pooled + (run * PAIRS + some[:, None]) * B + b[None, :])
        theta = tl.load(classifier + rows + some[None, :], mask=is_class, other=0.0)
        scores = tl.dot(theta, p, scores, input_precision="ieee")
    scores = tl.where(is_class, scores, -float("inf"))
    label = tl.load(targets + run * count + b, mask=inside, other=0)
    is_label = k[:, None] == label[None, :]
    highest = tl.max(scores, 0)
    shares = tl.exp(scores - highest[None, :])
    total = tl.sum(shares, 0)
    at_label = tl.sum(tl.where(is_label, scores, 0.0), 0)
    loss = tl.where(inside, highest + tl.log(total) - at_label, 0.0)
    tl.store(losses + run, tl.load(losses + run) + tl.sum(loss, 0).to(tl.float64))
    # The first of the largest; of those that are not numbers, torch takes the first, too.
    is_best = (scores == highest[None, :]) | (scores != scores)
    guess = tl.min(tl.where(is_best, k[:, None], CLASSES), 0)
    miss = tl.where(inside & (guess != label), 1, 0)
    tl.store(wrongs + run, tl.load(wrongs + run) + tl.sum(miss, 0).to(tl.int64))
    change = shares / total[None, :] - tl.where(is_label, 1.0, 0.0)
    change = tl.where(inside[None, :] & is_class, change, 0.0)
    tl.store(errors + (run * CLASSES + k[:, None]) * B + b[None, :], change)
    theta = tl.load(classifier + rows + pair[None, :], mask=is_class, other=0.0)
    back = tl.dot(tl.trans(theta), change, input_precision="ieee")
    tl.store(changes + (run * PAIRS + pair[:, None]) * B + b[None, :], back)
    tl.debug_barrier()  # errors are there for every thread
    gradient = tl.zeros((CLASSES, PAIRS), tl.float32)
    for start in range(0, B, SOME):
        some = start + tl.arange(0, SOME)
        d = tl.load(errors + (run * CLASSES + k[:, None]) * B + some[None, :])
        p = tl.load(pooled + (run * PAIRS + pair[:, None]) * B + some[None, :])
        gradient = tl.dot(d, tl.trans(p), gradient, input_precision="ieee")
    squared = tl.sum(theta * theta, 0)[None, :]
    size = tl.where(tl.load(kinds + run) == SCALED, squared, 1.0)
    moved = theta - tl.load(rates + run) * size * gradient
    tl.debug_barrier()  # every thread has read before one writes
    tl.store(classifier + rows + pair[None, :], moved, mask=is_class)


@triton.jit
def centered(h, inside, count, eps):
    """Centered responses c, their mean, the sum of their squares, and sigma."""
    mean = tl.sum(h, 1) / count
    c = tl.where(inside, h - mean[:, None], 0.0)
    squares = tl.sum(c * c, 1)
    return c, mean, squares, 1.0 / tl.sqrt(squares / count + eps)


@triton.jit
def follow(averages, offset, value, momentum):
    """Move a running average."""
    old = tl.load(averages + offset)
    tl.store(averages + offset, old + momentum * (value - old))


@triton.jit
def features_of(
    h, offset, inside, count, gammas, betas, means, variances, eps, momentum, NORMED: tl.constexpr
):
    """Features of responses in training; running averages follow."""
    if NORMED:
        c, mean, squares, scale = centered(h, inside, count, eps)
        follow(means, offset, mean, momentum)
        follow(variances, offset, squares / (count - 1), momentum)
        a = c * (tl.load(gammas + offset) * scale)[:, None] + tl.load(betas + offset)[:, None]
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
def responses_changed(c, scale, gamma, beta, change, offset, inside, count, gammas, betas, rate):
    """From the gradient of normalized features to that of responses; gamma and beta step."""
    d_beta = tl.sum(change, 1)
    d_gamma = tl.sum(change * c, 1) * scale
    dh = (change - (d_beta / count)[:, None] - c * (scale * d_gamma / count)[:, None]) * (gamma * scale)[
        :, None
    ]
    tl.debug_barrier()  # every thread has read before one writes
    tl.store(gammas + offset, gamma - rate * d_gamma)
    tl.store(betas + offset, beta - rate * d_beta)
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

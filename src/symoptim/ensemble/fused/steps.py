"""Triton kernels that move weights: the update of filters, and the classifier from its features to its step.

Formulas are those of :mod:`symoptim.updates.step` and :mod:`symoptim.ensemble.pairwise`. Axis letters: r run,
o row, i column, j pair, k class, b example; b is padded to ``B``, in memory too, and k to ``CLASSES``, with
0.
"""

# pyright: basic, reportMissingImports=false
import triton
import triton.language as tl

from symoptim.kernels import table

SCALED = tl.constexpr(table.SCALED)
UNIT_NORM = tl.constexpr(table.UNIT)


@triton.jit
def take(images, labels, order, position, batch, targets, trained, count, pixels, PIXELS: tl.constexpr):
    """Copy image ``order[r, position + b]`` to ``batch[r, b]``, and its label; a program each."""
    run, b = tl.program_id(0), tl.program_id(1)
    place = run * count + b
    number = tl.load(order + run * trained + tl.load(position) + b)
    tl.store(targets + place, tl.load(labels + number))
    pixel = tl.arange(0, PIXELS)
    inside = pixel < pixels
    tl.store(
        batch + place * pixels + pixel, tl.load(images + number * pixels + pixel, mask=inside), mask=inside
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

    In between the gradient of the scores is put down in ``errors`` ``(r, k, b)``.
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

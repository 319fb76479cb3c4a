"""Solve ``B^T w(l) = target`` (:mod:`.exponential_sums`): damped Newton steps by conjugate gradients.

The left side is the gradient of a sum of exponentials F, so l minimizes ``F(l) - target . l``, which is
convex. Along a step d whose largest log-scale is r/2, the second derivative grows at most like ``exp(r
t)``; a conjugate gradient step has ``d . gradient = -d . F'' d``; so the slope ``d . gradient(l + t d)``
stays negative as long as ``(exp(r t) - 1) / r <= 1``, that is up to ``t = log(1 + r) / r``. That t is
taken: the objective falls at every step without being computed, and t tends to 1 at the end, where Newton's
method converges quadratically.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from symoptim.applications.exponential_sums import (
    EntrySums,
    ExponentialSum,
    absolute_charges,
    largest_change,
)
from symoptim.errors import SymmetryError
from symoptim.symmetry.spec import SymmetrySpec

TOLERANCE = 1e-13
"""Of a gradient, relative to the curvature: the error of log-scales."""
ROUNDING = 5e-15
"""Of a gradient, relative to the sizes of the numbers that cancel in it."""
STEPS = 200
"""Of Newton's method, at most; networks of the tests take 4 to 12."""
DAMPING = 1e-6
"""Of the curvature, added to it, so that rounding does not grow along directions that move no entry."""
POWER = 2.0
"""Weights are squares of entries."""


def solve(
    spec: SymmetrySpec, sums: Sequence[EntrySums], target: Tensor, *, curvature: Tensor, start: Tensor
) -> Tensor:
    """Find the element at which squares have these charges.

    Args:
        spec: the group.
        sums: squares of entries.
        target: per scale, what squares shall add up to; only its charges count.
        curvature: that of F at the solution for every generator, about; steps are measured by it.
        start: where to begin.

    Returns:
        The element; along directions that move none of the entries it stays where it began.

    Raises:
        SymmetryError: it was not found.
    """
    element, relative = start.clone(), math.inf
    charges, sizes = (
        spec.by_generator(target),
        curvature + ROUNDING / TOLERANCE * absolute_charges(spec, target),
    )
    for _ in range(STEPS):
        there = ExponentialSum(spec, sums, element, POWER)
        totals = there.per_scale()
        gradient = spec.by_generator(totals) - charges
        # Where nothing is added up, nothing is wrong.
        relative = float((gradient.abs() / sizes.clamp(min=1e-300)).max()) if len(gradient) else 0.0
        if relative <= TOLERANCE:
            return element
        if not math.isfinite(relative):
            break
        accuracy = min(0.1, math.sqrt(relative))
        step = conjugate_gradients(there.curvature, -gradient / POWER, curvature, accuracy=accuracy)
        r = POWER * largest_change(spec, sums, step)
        element += math.log1p(r) / r * step if r else step
    raise SymmetryError(
        f"no representative was found in {STEPS} steps: the relative gradient is {relative:.0e}, and "
        f"{TOLERANCE:.0e} is wanted; are the sizes of weights within 150 orders of magnitude?"
    )


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], right: Tensor, diagonal: Tensor, *, accuracy: float
) -> Tensor:
    """Solve a positive semidefinite system that has a solution, nearly.

    Args:
        product: with its matrix, to which ``DAMPING`` times the diagonal is added.
        right: its right side.
        diagonal: nearly its diagonal, to precondition with; where it is zero the solution is too.
        accuracy: size of the residual relative to the right side, in the norm of the preconditioner.

    Returns:
        The solution.

    >>> matrix = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> conjugate_gradients(lambda v: matrix @ v, matrix @ torch.ones(2), matrix.diagonal(), accuracy=1e-6)
    tensor([1.0000, 1.0000])
    """
    inverse = torch.where(diagonal > 0, 1 / diagonal, 0.0)
    solution, residual = torch.zeros_like(right), right.clone()
    direction = inverse * residual
    size = wanted = float(residual @ direction)
    for _ in range(10 * len(right)):
        if size <= accuracy**2 * wanted:
            break
        moved = product(direction) + DAMPING * diagonal * direction
        length = size / float(direction @ moved)
        solution += length * direction
        residual -= length * moved
        new = float(residual @ (inverse * residual))
        direction = inverse * residual + new / size * direction
        size = new
    return solution

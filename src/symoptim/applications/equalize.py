r"""Balance for quantization with one step size per tensor.

Rounding to a grid of n bits costs a tensor a relative error proportional to its largest entry over its root
mean square. Rescaling the network changes that ratio, and equalization makes it small in all tensors at
once:

.. math:: \min_l \sum_W \log \frac{\|W e^{B l}\|_p}{\operatorname{rms}(W e^{B l})},

over the tensors with two axes or more, with a p large enough for the largest entry and small enough to be
smooth. Biases and norms move along, and are not counted. Reference: data-free quantization,
arXiv:1906.04721, equalizes the largest entries of pairs of layers; here it is the whole group at once.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from symoptim.applications.canonicalize import canonical_element, parameters_of
from symoptim.applications.exponential_sums import (
    EntrySums,
    add_to_scales,
    entry_sums,
    marginals,
    moving_terms,
)
from symoptim.applications.within_tolerance import element_within_tolerance
from symoptim.errors import OptionError
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.state import TOLERANCE

POWER = 8.0
"""p. By ``python examples/equalize.py --power P`` mean int8 errors are .0146, .0129, .0119, .0156 at 4, 8, 16
and 32, on four networks; from 16 on L-BFGS does not quite end where it would from another scaling.
"""
STEPS = 200
"""Of L-BFGS, at most."""
TOO_FAR = 1e6
"""Value of the objective where it cannot be computed; elsewhere it is a few units per tensor."""
GRADIENT = 1e-9
"""Of the gradient's largest entry, where L-BFGS ends."""
SEARCHES = 10
"""By L-BFGS, at most: 183 random perceptrons needed one each, 1-8-4-5 units with seed 0 two."""
ENOUGH = 1e-6
"""Gradient from which on no search follows: rounding ends them between 1e-7 and 1e-9."""


class PowerSums(NamedTuple):
    """Sums of p-th powers of a tensor's entries, which are decided by the largest, and of squares."""

    powers: EntrySums
    squares: EntrySums


@torch.no_grad()
def equalize_(
    model: nn.Module,
    spec: SymmetrySpec,
    *,
    power: float = POWER,
    inputs: object = None,
    tolerance: float = TOLERANCE,
) -> Tensor:
    """Balance a model's weights, in place; its outputs stay what they were.

    It begins at the representative of :func:`.canonicalize.canonicalize_`, so that what comes out does not
    depend on how the model was scaled, but for rounding.

    Args:
        model: the one the group was found on, or another of the same shapes; fold batch normalization first.
        spec: the group.
        power: p.
        inputs: calls to measure the change of outputs on, as for :meth:`.SymmetrySpec.rescale_`.
        tolerance: relative change of outputs that is accepted; ``math.inf`` for any, without measuring.

    Returns:
        The element it acted with; ``spec.rescale_(model, -element)`` undoes it. Zeros, where the group moves
        no weights of two axes or more: there is nothing to balance, and the model is left as it is.

    Raises:
        OptionError: the power is not above 2.
        SymmetryError: the group is of another model, weights are not finite, or would not be, or along every
            generator outputs would change by more than the tolerance.

    >>> from symoptim.symmetry.discover import discover
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> spec = discover(model, (torch.rand(5, 3),))
    >>> with torch.no_grad():
    ...     _ = model[0].weight[0].mul_(100), model[0].bias[0].mul_(100), model[2].weight[:, 0].div_(100)
    >>> _ = equalize_(model, spec)
    >>> bool(model[0].weight.abs().max() < 4 * model[0].weight.square().mean().sqrt())
    True
    """
    if not 2 < power < float("inf"):
        raise OptionError(f"power must be a finite number above 2, got {power}")
    parameters = parameters_of(model, spec)
    weights = {name: w for name, w in parameters.items() if w.dim() > 1 and bool(w.any())}
    terms = moving_terms(spec, weights)
    if not terms:
        return torch.zeros(len(spec), dtype=torch.float64)
    element = canonical_element(parameters, spec)
    log_scales = spec.log_scales(element, {name: weights[name] for name in terms})
    tensor_sums: list[PowerSums] = []
    for name in terms:
        values = weights[name].to("cpu", torch.float64).abs() * log_scales[name].exp()
        values = values / values.max()
        powers, squares = (entry_sums(of, terms[name]) for of in (values**power, values.square()))
        tensor_sums.append(PowerSums(powers, squares))
    element += _minimize(spec, tensor_sums, power)
    element = element_within_tolerance(spec, model, element, inputs, tolerance)
    spec.rescale_(model, element, tolerance=math.inf)
    return element


def _minimize(spec: SymmetrySpec, tensor_sums: Sequence[PowerSums], power: float) -> Tensor:
    """The element that lowers the objective, beginning at the identity.

    The objective is not convex. Past a saddle L-BFGS tries steps so long that sums of powers have no value in
    float64, which its line search would take for a descent: these get a value that is larger than any. Such a
    search ends early, and begins again without the memory of the saddle.
    """
    element, values = torch.zeros(len(spec), dtype=torch.float64), [math.inf]
    for _ in range(SEARCHES):
        value, gradient = _search(spec, tensor_sums, power, element)
        values.append(value)
        if gradient <= ENOUGH or values[-2] - value <= ENOUGH**2:
            break
    return element


def _search(
    spec: SymmetrySpec, tensor_sums: Sequence[PowerSums], power: float, element: Tensor
) -> tuple[float, float]:
    """Move an element downhill by L-BFGS; returns the value there, and the gradient's largest entry."""
    optimizer: Any = torch.optim.LBFGS(
        [element],
        max_iter=STEPS,
        tolerance_grad=GRADIENT,
        tolerance_change=1e-14,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        value, element.grad = objective(spec, tensor_sums, power, element)
        if math.isfinite(value) and bool(element.grad.isfinite().all()):
            return value
        element.grad = torch.zeros_like(element)
        return TOO_FAR

    optimizer.step(closure)
    value, gradient = objective(spec, tensor_sums, power, element)
    return value, float(gradient.abs().max())


def objective(
    spec: SymmetrySpec, tensor_sums: Sequence[PowerSums], power: float, element: Tensor
) -> tuple[float, Tensor]:
    """The sum of log(p-norm) - log(norm), and its gradient; p-norm and rms differ from it by constants.

    Args:
        spec: the group.
        tensor_sums: for every tensor sums of p-th powers and of squares.
        power: p.
        element: where.

    Returns:
        Value and gradient, one number per generator.
    """
    scales, totals, value = spec.by_scale(element.detach()), torch.zeros(spec.scales + 1).double(), 0.0
    for both in tensor_sums:
        for sums, exponent, sign in zip(both, (power, 2.0), (1, -1), strict=True):
            found = marginals(sums, [(exponent * scales[term.scales]).exp() for term in sums.terms])
            total = found[0].sum()
            value += sign * float(total.log()) / exponent
            for term, marginal in zip(sums.terms, found, strict=True):
                add_to_scales(totals, term, sign * marginal / total)
    return value, spec.by_generator(totals)

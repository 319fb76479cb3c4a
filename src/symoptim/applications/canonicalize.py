r"""One representative per orbit: the same network always gets the same weights, however it was scaled.

Among all rescalings of a model's parameters theta by an element l,

.. math:: \min_l \sum_{\theta_e \ne 0} \tfrac12 \theta_e^2 e^{2 (B l)_e} - \kappa_e (B l)_e,

with :math:`(B l)_e` the log-scale of entry e, and :math:`\kappa_e` one over the number of entries in a row
of its tensor (1 for vectors), so that rows come out with a norm of about one. In terms of what comes out,
the sum is of :math:`\theta^2/2 - \kappa \log|\theta|`: it does not matter where on the orbit one began. It
is strictly convex in the log-scales of nonzero entries and grows in all their directions, so there is
exactly one minimum, up to elements that move no nonzero parameter. (The sum of squares alone has none where a
normalization makes weights scale-free.)
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from symoptim.applications.exponential_sums import (
    EntrySums,
    ExponentialSum,
    at_identity,
    curvature_diagonal,
    entry_sums,
    merge_single_terms,
    moving_terms,
)
from symoptim.applications.newton import conjugate_gradients, solve
from symoptim.applications.within_tolerance import element_within_tolerance
from symoptim.errors import SymmetryError
from symoptim.symmetry.spec import SymmetrySpec, require_spec
from symoptim.symmetry.state import TOLERANCE

START = 1e-3
"""Accuracy of the point where Newton's method starts."""


@torch.no_grad()
def canonicalize_(
    model: nn.Module,
    spec: SymmetrySpec,
    *,
    optimizer: Optimizer | None = None,
    inputs: object = None,
    tolerance: float = TOLERANCE,
) -> Tensor:
    """Bring a model to the representative of its orbit, in place; its outputs stay what they were.

    Computed in float64 on the CPU, whatever the model's precision and device. Buffers move along, but what
    comes out depends on parameters alone. A generator that moves no parameter, or only zeros, is left
    alone; so is, with an ``EpsWarning``, one along which the eps of a normalization changes outputs.

    Args:
        model: the one the group was found on, or another of the same shapes.
        spec: the group.
        optimizer: its state is moved along, as by :meth:`.SymmetrySpec.rescale_`: in the middle of training.
        inputs: calls to measure the change of outputs on, as for :meth:`.SymmetrySpec.rescale_`.
        tolerance: relative change of outputs that is accepted; ``math.inf`` for any, without measuring.

    Returns:
        The element it acted with; ``spec.rescale_(model, -element)`` undoes it.

    Raises:
        OptionError: the optimizer's state cannot be moved.
        SymmetryError: the group is of another model, weights are not finite or would not be, there is no
            solution, or along every generator outputs would change by more than the tolerance.

    >>> from symoptim.symmetry.discover import discover
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    >>> spec = discover(model, (torch.rand(5, 3, dtype=torch.float64),))
    >>> _ = canonicalize_(model, spec)
    >>> once = model[0].weight.clone()
    >>> _ = canonicalize_(spec.rescale_(model, spec.random(spread=3.0)), spec)
    >>> torch.allclose(model[0].weight, once, rtol=1e-12)
    True
    """
    element = canonical_element(parameters_of(model, spec), spec)
    element = element_within_tolerance(spec, model, element, inputs, tolerance)
    spec.rescale_(model, element, optimizer=optimizer, tolerance=math.inf)
    return element


def parameters_of(model: nn.Module, spec: SymmetrySpec) -> dict[str, Tensor]:
    """The parameters a group moves, by the names it knows them by."""
    require_spec(spec)
    there = spec.require_model(model)
    return {name: there[name].detach() for name in spec.tensors if isinstance(there[name], nn.Parameter)}


@torch.no_grad()
def canonical_element(tensors: Mapping[str, Tensor], spec: SymmetrySpec) -> Tensor:
    """The element that takes these parameters to the representative of their orbit.

    Args:
        tensors: parameters by name, of the group's shapes; other tensors are ignored.
        spec: the group.

    Returns:
        Log-scales, one per generator.

    Raises:
        SymmetryError: weights are not finite, or there is no solution.
    """
    squares: list[EntrySums] = []
    counts: list[EntrySums] = []
    for name, terms in moving_terms(spec, [name for name in spec.tensors if name in tensors]).items():
        squared = squares_of(tensors[name], name)
        squares.append(entry_sums(squared, terms))
        counts.append(entry_sums((squared > 0).double() * _kappa(squared), terms))
    target = at_identity(spec, counts)
    curvature = curvature_diagonal(target)
    start = _least_squares_start(target, squares, curvature)
    squares = merge_single_terms(squares, spec.scales)
    return solve(spec, squares, target.per_scale(), curvature=curvature, start=start)


def squares_of(tensor: Tensor, name: str) -> Tensor:
    """Squares of a tensor's entries, in float64 on the CPU; an error if they are not finite."""
    if tensor.device.type == "meta":
        raise SymmetryError(f"'{name}' has no values (meta device): give a model that has some")
    squared = tensor.detach().to("cpu", torch.float64).square()
    if not bool(squared.isfinite().all()):
        raise SymmetryError(
            f"'{name}' has entries that are not finite, or too large to be squared; nothing was changed"
        )
    return squared


def _kappa(tensor: Tensor) -> float:
    """One over the number of entries in a row; 1 for vectors.

    >>> _kappa(torch.zeros(4, 3, 5, 5)), _kappa(torch.zeros(7))
    (0.013333333333333334, 1.0)
    """
    return tensor.shape[0] / tensor.numel() if tensor.dim() > 1 and tensor.numel() else 1.0


def _least_squares_start(target: ExponentialSum, squares: list[EntrySums], curvature: Tensor) -> Tensor:
    """The element at which the logarithms of all entries are nearest to those wanted, by least squares.

    The weights there are the same for every point of the orbit, so Newton's method takes the same steps.
    """
    pull: list[EntrySums] = []
    for square, count in zip(squares, target.sums, strict=True):
        ratio = torch.where(count.values > 0, square.values / count.values, 1.0)
        pull.append(square._replace(values=-0.5 * count.values * ratio.log()))
    right = at_identity(target.spec, pull).gradient()
    return conjugate_gradients(target.curvature, right, curvature, accuracy=START)

"""Bring one checkpoint to the gauge of another, so that weights can be compared and averaged."""

import copy

import torch
from torch import nn

from symoptim.applications.canonicalize import canonical_element, parameters_of
from symoptim.modules import unwrapped
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.state import TOLERANCE


@torch.no_grad()
def align(
    model_a: nn.Module,
    model_b: nn.Module,
    spec: SymmetrySpec,
    *,
    inputs: object = None,
    tolerance: float = TOLERANCE,
) -> nn.Module:
    """A copy of one model in the gauge of another: same function, weights scaled as the other's are.

    With c(m) the element that takes m to the representative of its orbit, the copy is ``model_b`` acted on
    with c(b) - c(a). If the models are rescalings of each other it equals ``model_a``; if they were trained
    on from one checkpoint, and one was rescaled, it undoes that, up to what training has changed.

    Args:
        model_a: whose gauge is wanted.
        model_b: whose function is wanted; it is left as it is.
        spec: a group that both have, for it is of their architecture.
        inputs: calls to measure the change of outputs on, as for :meth:`.SymmetrySpec.rescale_`.
        tolerance: relative change of outputs that is accepted; ``math.inf`` for any, without measuring.

    Returns:
        The copy; of a model that is compiled or wrapped for data parallelism, a copy of the inner model.

    Raises:
        SymmetryError: the group is of another model, weights are not finite, or outputs would change by more
            than the tolerance, because the eps of a normalization is felt.

    >>> from symoptim.symmetry.discover import discover
    >>> one = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> spec = discover(one, (torch.rand(5, 3),))
    >>> other = spec.rescale_(copy.deepcopy(one), spec.random(spread=2.0))
    >>> torch.allclose(align(one, other, spec)[0].weight, one[0].weight, rtol=1e-5)
    True
    """
    wanted = canonical_element(parameters_of(model_a, spec), spec)
    there = canonical_element(parameters_of(model_b, spec), spec)
    aligned = copy.deepcopy(unwrapped(model_b))
    spec.rescale_(aligned, there - wanted, inputs=inputs, tolerance=tolerance)
    return aligned

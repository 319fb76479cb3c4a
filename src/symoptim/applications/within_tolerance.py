"""Rescalings left out where the eps of a normalization changes outputs by more than a tolerance."""

import math

import torch
from torch import Tensor, nn

from symoptim.errors import EpsWarning, SymmetryError, warn_user
from symoptim.symmetry.eps_effect import EpsEffect, eps_effect_of
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.state import require_tolerance

MEASUREMENTS = 48
"""Elements that are tried at most; each is a call of one copy of the model."""


@torch.no_grad()
def element_within_tolerance(
    spec: SymmetrySpec, model: nn.Module, element: Tensor, inputs: object, tolerance: float
) -> Tensor:
    """An element without those of its generators that would change outputs by more than a tolerance.

    Outputs are measured on a copy of the model. Generators along which eps is felt most are left out, as many
    as it takes, and added again one by one as long as outputs change by less.

    Args:
        spec: the group.
        model: is left as it is.
        element: log-scales.
        inputs: to measure on, as for :meth:`.SymmetrySpec.rescale_`.
        tolerance: relative change of outputs that is accepted; not measured if it is infinite.

    Returns:
        The element, zeros in place of some log-scales.

    Raises:
        OptionError: the tolerance is not above 0.
        SymmetryError: along every generator outputs would change by more.
    """
    require_tolerance(tolerance)
    moving = element.nonzero().flatten()
    if not spec.approximate or tolerance == math.inf or not len(moving):
        return element
    felt = eps_effect_of(spec, model, inputs)
    if felt is None:
        return element
    change = felt.change(element)
    if change <= tolerance:
        return element
    kept = _kept(felt, element, moving[felt.slopes(element)[moving].argsort()], tolerance)
    held = int(((kept == 0) & (element != 0)).sum())
    felt_too_much = f"eps is felt: outputs would change by {change:.1e}, and {tolerance:.1e} is accepted"
    if held == len(moving):
        raise SymmetryError(
            f"{felt_too_much}; no rescaling could be applied, and nothing was changed: give "
            "other inputs=, or accept more with tolerance= (math.inf for any change)"
        )
    warn_user(
        f"{felt_too_much}; {held} of {len(moving)} rescalings were not applied, so that the result depends "
        "on how the model was scaled before (tolerance=math.inf applies them all)",
        EpsWarning,
    )
    return kept


def _kept(felt: EpsEffect, element: Tensor, order: Tensor, tolerance: float) -> Tensor:
    """The element without 1, 4, 16, ... of the last generators in order, and then without fewer.

    Parts of what was left out are added again; one that changes outputs too much is tried again in halves.
    """
    kept, waiting = torch.zeros_like(element), [*reversed(order.chunk(2))]
    left_out = 1
    while left_out < len(order):
        trial = element.clone()
        trial[order[-left_out:]] = 0
        if felt.change(trial) <= tolerance:
            kept = trial
            # Together they are felt: that is why so many are left out.
            waiting = [*reversed(order[-left_out:].chunk(2))] if left_out > 1 else []
            break
        left_out *= 4
    while waiting and felt.measured < MEASUREMENTS:
        part = waiting.pop()
        trial = kept.clone()
        trial[part] = element[part]
        if felt.change(trial) <= tolerance:
            kept = trial
        elif len(part) > 1:
            waiting += reversed(part.chunk(2))
    return kept

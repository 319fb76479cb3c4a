"""Rescalings left out where the eps of normalizations is felt, so that outputs stay what they were."""

import math
from collections.abc import Iterator
from itertools import count, takewhile
from typing import Any

import torch
from torch import Tensor, nn

from symoptim.errors import EpsWarning, SymmetryError, warn_user
from symoptim.symmetry.eps_effect import EpsEffect, eps_effect_of
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.state import require_tolerance

MEASUREMENTS = 48
"""Elements that are tried at most; each is a call of one copy of the model."""


@torch.no_grad()
def bounded_element(
    spec: SymmetrySpec, model: nn.Module, element: Tensor, inputs: Any, tolerance: float
) -> Tensor:
    """An element, without those of its generators that eps forbids to move so far.

    Outputs are measured on a copy. If they change by more than the tolerance, generators along which eps is
    felt most are left out, as many as it takes, and added again one by one as long as outputs change by less.

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
    """The element, without as many of the last generators in order as it takes, and then without fewer.

    Parts of what was left out are added again: one that is felt is tried again in halves.
    """
    kept, waiting = torch.zeros_like(element), [*reversed(order.chunk(2))]
    for left_out in _powers_of_four(len(order)):
        trial = element.clone()
        trial[order[-left_out:]] = 0
        if felt.change(trial) <= tolerance:
            kept = trial
            # Together they are felt: that is why so many are left out.
            waiting = [*reversed(order[-left_out:].chunk(2))] if left_out > 1 else []
            break
    while waiting and felt.measured < MEASUREMENTS:
        part = waiting.pop()
        trial = kept.clone()
        trial[part] = element[part]
        if felt.change(trial) <= tolerance:
            kept = trial
        elif len(part) > 1:
            waiting += reversed(part.chunk(2))
    return kept


def _powers_of_four(limit: int) -> Iterator[int]:
    """1, 4, 16 and so on, below a limit.

    >>> list(_powers_of_four(64))
    [1, 4, 16]
    """
    return takewhile(lambda power: power < limit, (4**number for number in count()))

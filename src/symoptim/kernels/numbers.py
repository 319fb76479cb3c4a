r"""The numbers of a step as kernels take them: one row of a table per parameter group.

With d the direction and :math:`\tau(b)` the momentum carried to this point, every update of
:mod:`symoptim.updates.step` is

.. math::
    b' &= \mu\, \tau(b) + d \\
    w' &= \operatorname{move}\bigl((1 - r \lambda)\, w,\; -r (\alpha\, \tau(b) + \beta\, d)\bigr)

with :math:`\alpha = \mu, \beta = 1`, or, Nesterov, :math:`\alpha = \mu^2, \beta = 1 + \mu`: a kernel need not
know which.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

RATE, MOMENTUM, OLD, NEW, DECAY, SIGN = range(6)
"""Columns: r, mu, alpha, beta, lambda, and 1 or -1 to descend or ascend."""

COLUMNS = 6

STILL = (0.0,) * COLUMNS
"""The row of filters that cannot move: unit-norm ones of a single entry."""


def rate_elsewhere(group: Mapping[str, Any]) -> Tensor | None:
    """The rate of a group, if it is on a device: reading it would mean to wait for that."""
    rate = group["lr"]
    return rate if isinstance(rate, Tensor) and rate.device.type != "cpu" else None


def numbers_of(group: Mapping[str, Any]) -> tuple[float, ...]:
    """The row of a group; a rate that is on a device is left at zero, to be put there.

    >>> group = {"lr": 0.1, "momentum": 0.5, "nesterov": True, "weight_decay": 0.0, "maximize": False}
    >>> numbers_of(group)
    (0.1, 0.5, 0.25, 1.5, 0.0, 1.0)
    """
    rate, momentum = group["lr"], group["momentum"]
    if isinstance(rate, Tensor):
        rate = rate.detach()  # torch warns where one that autograd follows is read as a number
    old, new = (momentum * momentum, 1.0 + momentum) if group["nesterov"] else (momentum, 1.0)
    return (
        float(rate) if rate_elsewhere(group) is None else 0.0,
        float(momentum),
        float(old),
        float(new),
        float(group["weight_decay"]),
        -1.0 if group["maximize"] else 1.0,
    )

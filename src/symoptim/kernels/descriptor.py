r"""What kernels are told: a table with a row per tensor, and a row of hyperparameters per parameter group.

With d the direction and :math:`\tau(b)` the momentum carried to this point, every update of
:mod:`symoptim.updates.step` is

.. math::
    b' &= \mu\, \tau(b) + d \\
    w' &= \operatorname{move}\bigl((1 - r \lambda)\, w,\; -r (\alpha\, \tau(b) + \beta\, d)\bigr)

with :math:`\alpha = \mu, \beta = 1`, or, Nesterov, :math:`\alpha = \mu^2, \beta = 1 + \mu`: a kernel need not
know which.
"""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor

WEIGHTS, GRADIENT, BUFFER, ROWS, COLUMNS, PARAMETER = range(6)
"""Columns of the table with addresses, zero for what there is not: momentum buffer, factors of the metric by
row and by column; and the parameter itself, where the weights are its master copy."""

OUTER, COUNT, INNER = range(6, 9)
"""Columns with the layout of the filters (:mod:`.memory_layout`)."""

KIND, GROUP, SQUARED = range(9, 12)
"""Columns with the update, the row of hyperparameters, and whether factors are multiplied twice."""

WIDTH = 12

PLAIN, SCALED, UNIT_NORM = range(3)
"""Updates of :mod:`symoptim.updates.catalog`."""

OUT = WIDTH
"""Where squared norms of matrices are taken the table has this column, too: the position of the first sum."""

NORM_WIDTH = WIDTH + 1

OF_ROWS, OF_COLUMNS = range(2)
"""Whose squared norms are taken, in the column :data:`KIND`."""

RATE, MOMENTUM, OLD, NEW, DECAY, SIGN = range(6)
"""Columns of hyperparameters: r, mu, alpha, beta, lambda, and 1 or -1 to descend or ascend."""

HYPERPARAMETERS = 6

NO_STEP = (0.0,) * HYPERPARAMETERS
"""The row of filters that cannot move: unit-norm ones of a single entry."""


def table_rows(table: Tensor) -> list[list[int]]:
    """The rows of a table as numbers."""
    return cast("list[list[int]]", cast("Any", table).tolist())


def rate_on_device(group: Mapping[str, Any]) -> Tensor | None:
    """The rate of a group, if it is on a device: reading it would mean to wait for that."""
    rate = group["lr"]
    return rate if isinstance(rate, Tensor) and rate.device.type != "cpu" else None


def hyperparameter_row(group: Mapping[str, Any]) -> tuple[float, ...]:
    """The row of a group; a rate that is on a device is left at zero, to be put there.

    >>> group = {"lr": 0.1, "momentum": 0.5, "nesterov": True, "weight_decay": 0.0, "maximize": False}
    >>> hyperparameter_row(group)
    (0.1, 0.5, 0.25, 1.5, 0.0, 1.0)
    """
    rate, momentum = group["lr"], group["momentum"]
    if isinstance(rate, Tensor):
        rate = rate.detach()  # torch warns where one that autograd follows is read as a number
    old, new = (momentum * momentum, 1.0 + momentum) if group["nesterov"] else (momentum, 1.0)
    return (
        float(rate) if rate_on_device(group) is None else 0.0,
        float(momentum),
        float(old),
        float(new),
        float(group["weight_decay"]),
        -1.0 if group["maximize"] else 1.0,
    )

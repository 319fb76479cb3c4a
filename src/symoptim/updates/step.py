r"""One step of an update, with momentum and decay: the meaning of every optimizer of this package.

With d the direction, :math:`\tau` the transport and r the rate:

.. math::
    b' &= \mu\, \tau_w(b) + d(w, g) \\
    v  &= b' \quad\text{or, Nesterov,}\quad d(w, g) + \mu b' \\
    w' &= \operatorname{move}\bigl((1 - r \lambda)\, w,\; -r v\bigr)

Weights that the update is not defined for (rows that are not of unit norm, for the unit-norm update) are
first brought to the nearest ones it is.

The buffer b lives in *update space* and scales like w, so the scaled update stays invariant with
momentum; it starts at zero, so the first step with momentum is the step without.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.geometry.filters import ROWS, Axes
from symoptim.updates.catalog import Update

Rate = float | Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOptions:
    """Numbers of a step; ``lr`` may be a tensor that broadcasts against the weights (one per run)."""

    lr: Rate
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    maximize: bool = False


class Stepped(NamedTuple):
    """Weights and momentum buffer after a step; no buffer without momentum."""

    weights: Tensor
    buffer: Tensor | None


def step(
    update: Update,
    w: Tensor,
    g: Tensor,
    options: StepOptions,
    *,
    buffer: Tensor | None = None,
    over: Axes = ROWS,
) -> Stepped:
    """Take one step from ``w`` with gradient ``g``; nothing is changed in place.

    Args:
        update: which update, from :mod:`symoptim.updates.catalog`.
        w: weights, ``(*batch, o, i)`` for rows.
        g: gradient, like ``w``.
        options: rate, momentum and decay.
        buffer: momentum buffer of the last step; none before the first.
        over: axes a filter extends over.

    Returns:
        The new weights and the new buffer.

    >>> from symoptim.updates.catalog import SCALED
    >>> w, g = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]])
    >>> step(SCALED, w, g, StepOptions(lr=0.1)).weights
    tensor([[0.5000, 4.0000]])
    """
    w = update.start(w, over)
    direction = update.direction(w, -g if options.maximize else g, over)
    new_buffer = None
    if options.momentum:
        old = torch.zeros_like(w) if buffer is None else update.transport(w, buffer, over)
        new_buffer = options.momentum * old + direction
        direction = direction + options.momentum * new_buffer if options.nesterov else new_buffer
    lr = rate_like(options.lr, w)
    decayed = w * (1 - lr * options.weight_decay) if options.weight_decay else w
    return Stepped(update.move(decayed, -lr * direction, over), new_buffer)


def rate_like(lr: Rate, w: Tensor) -> Rate:
    """The rate in the precision of the weights at least, in which ``1 - lr weight_decay`` is computed.

    >>> rate_like(torch.tensor(0.5), torch.zeros(2, dtype=torch.float64))
    tensor(0.5000, dtype=torch.float64)
    """
    return lr.to(torch.promote_types(lr.dtype, w.dtype)) if isinstance(lr, Tensor) else lr

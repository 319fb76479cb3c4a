"""Schedules as pure functions, the paper's two and half a cosine; rates and losses may have a run axis.

With a single optimizer use :class:`torch.optim.lr_scheduler.ExponentialLR` for :func:`exponential`,
:class:`symoptim.BoldDriver` for :func:`bold_driver`, and
:class:`torch.optim.lr_scheduler.CosineAnnealingLR` for :func:`cosine`.
"""

import math

import torch
from torch import Tensor


def exponential(rate: Tensor, *, decay: float = 0.95) -> Tensor:
    """Rate after one more epoch of exponential decay.

    >>> exponential(torch.tensor([1.0, 0.1]))
    tensor([0.9500, 0.0950])
    """
    return rate * decay


def cosine(start: Tensor, done: int, epochs: int) -> Tensor:
    """Rate of the epoch after ``done`` of ``epochs``: half a cosine from ``start`` towards zero.

    >>> cosine(torch.tensor(1.0), 2, 4)
    tensor(0.5000)
    """
    return start * (1 + math.cos(math.pi * min(done, epochs) / epochs)) / 2


def bold_driver(
    rate: Tensor, loss: Tensor, last_loss: Tensor | None, *, grow: float = 1.1, shrink: float = 0.5
) -> Tensor:
    """Rate after one more epoch: it grows where the loss is not higher than the last, else it shrinks.

    A loss that is not finite is higher than any; a last loss that is not finite is not a bar. The first
    epoch, which has no ``last_loss``, changes nothing. Weights are never rolled back.

    Args:
        rate: rate of the epoch that ended, ``(*runs,)``.
        loss: its mean training loss, ``(*runs,)``.
        last_loss: that of the epoch before; None for the first.
        grow: factor where the loss is not higher.
        shrink: factor where it is.

    Returns:
        Rate of the next epoch, ``(*runs,)``.

    >>> loss, last = torch.tensor([1.0, 2.0, torch.nan]), torch.tensor([1.0, 1.0, 1.0])
    >>> bold_driver(torch.ones(3), loss, last)
    tensor([1.1000, 0.5000, 0.5000])
    """
    if last_loss is None:
        return rate
    bar = torch.where(last_loss.isfinite(), last_loss, torch.inf)
    better = loss.isfinite() & (loss <= bar)
    return torch.where(better, rate * grow, rate * shrink)

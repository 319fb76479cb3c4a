"""The bold driver for any optimizer: give it the loss of every epoch."""

import math
from typing import SupportsFloat

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from symoptim.errors import OptionError
from symoptim.schedules.functions import bold_driver


class BoldDriver(LRScheduler):
    """Grow the rate after every epoch whose loss is not higher than the last one's, else cut it.

    A loss that is NaN or infinite cuts the rate; the first epoch changes nothing; weights are not rolled
    back. All parameter groups move by the same factor. ``state_dict`` has all that is needed to resume.

    .. note:: The paper does not give its factors. 1.1 and 0.5 are those of a published descendant of its
        authors' code.

    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    >>> schedule = BoldDriver(optimizer)
    >>> for loss in (3.0, 2.0, 2.5):
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.55]
    """

    def __init__(self, optimizer: Optimizer, grow: float = 1.1, shrink: float = 0.5) -> None:
        """Adjust the rates of ``optimizer``.

        Args:
            optimizer: any optimizer.
            grow: factor when the loss is not higher, at least 1.
            shrink: factor when it is, between 0 and 1.

        Raises:
            OptionError: a factor breaks its rule.
        """
        # Like torch's ReduceLROnPlateau, not super().__init__(): that takes a first step without a loss.
        if not 1 <= grow < math.inf:
            raise OptionError(f"grow must be a finite number >= 1, got {grow}")
        if not 0 < shrink < 1:
            raise OptionError(f"shrink must be in (0, 1), got {shrink}")
        if not isinstance(optimizer, Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"BoldDriver needs an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.grow = grow
        self.shrink = shrink
        self.last_epoch = 0
        self.last_loss: float | None = None
        self._last_lr: list[float | Tensor] = self._rates()

    def _rates(self) -> list[float | Tensor]:
        """Rates of all groups, as numbers that later steps do not change."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, loss: SupportsFloat) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """End an epoch.

        Args:
            loss: mean training loss of the epoch, a number or a 1-element Tensor.
        """
        value = float(loss.detach() if isinstance(loss, Tensor) else loss)
        now = torch.tensor(value, dtype=torch.float64)
        last = None if self.last_loss is None else torch.tensor(self.last_loss, dtype=torch.float64)
        rates = torch.tensor(self._rates(), dtype=torch.float64)
        # All new rates first: groups may share one rate Tensor, which must not grow once per group.
        new = bold_driver(rates, now, last, grow=self.grow, shrink=self.shrink)
        for group, rate in zip(self.optimizer.param_groups, map(float, new), strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.last_loss = value
        self.last_epoch += 1
        self._last_lr = self._rates()

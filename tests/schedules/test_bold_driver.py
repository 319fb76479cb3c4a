import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import ExponentialLR, LRScheduler

from symoptim import BoldDriver, ScaledSGD, UnitNormSGD, invariant
from symoptim.errors import OptionError
from symoptim.schedules.functions import bold_driver, exponential

LOSSES = [3.0, 2.0, 2.0, 2.5, math.nan, 2.0, 1.0, math.inf, math.inf, 0.5]
FACTORS = [1.0, 1.1, 1.1, 0.5, 0.5, 1.1, 1.1, 0.5, 0.5, 1.1]


def optimizer_with(lr: float | torch.Tensor = 1.0, **options: object) -> Optimizer:
    return SGD([nn.Parameter(torch.zeros(1))], lr=lr, **options)


def test_rate_grows_where_the_loss_is_not_higher_and_halves_where_it_is_or_is_not_finite() -> None:
    optimizer = optimizer_with()
    schedule = BoldDriver(optimizer)
    expected = 1.0
    for loss, factor in zip(LOSSES, FACTORS, strict=True):
        schedule.step(loss)
        expected *= factor
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, rel=1e-12)
        assert schedule.get_last_lr() == [optimizer.param_groups[0]["lr"]]


def test_many_runs_at_once_move_like_each_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    losses = torch.rand(20, 7, generator=generator, dtype=torch.float64)
    losses[3, 2] = torch.nan
    together = torch.logspace(-3, 0, 7, dtype=torch.float64)
    optimizers = [optimizer_with(float(rate)) for rate in together]
    schedules = [BoldDriver(optimizer, grow=1.05, shrink=0.7) for optimizer in optimizers]
    last = None
    for epoch in losses:
        together = bold_driver(together, epoch, last, grow=1.05, shrink=0.7)
        last = epoch
        for schedule, loss in zip(schedules, epoch, strict=True):
            schedule.step(loss)
    alone = torch.tensor([o.param_groups[0]["lr"] for o in optimizers], dtype=torch.float64)
    torch.testing.assert_close(together, alone, rtol=1e-14, atol=0)


def test_all_groups_move_by_the_same_factor() -> None:
    parameters = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = SGD([{"params": parameters[0], "lr": 1.0}, {"params": parameters[1], "lr": 0.1}])
    schedule = BoldDriver(optimizer)
    schedule.step(1.0)
    schedule.step(0.5)
    assert schedule.get_last_lr() == pytest.approx([1.1, 0.11])


def test_a_rate_tensor_shared_by_groups_changes_in_place_and_once() -> None:
    rate = torch.tensor(1.0)
    optimizer = SGD([{"params": nn.Parameter(torch.zeros(1))} for _ in range(2)], lr=rate)
    schedule = BoldDriver(optimizer)
    schedule.step(1.0)
    schedule.step(torch.tensor(0.5))
    assert float(rate) == pytest.approx(1.1)
    assert optimizer.param_groups[1]["lr"] is rate


def test_a_saved_schedule_goes_on_where_it_was() -> None:
    optimizer = optimizer_with()
    schedule = BoldDriver(optimizer, grow=1.2)
    for loss in LOSSES[:4]:
        schedule.step(loss)
    other = optimizer_with()
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    resumed = BoldDriver(other)
    resumed.load_state_dict(schedule.state_dict())
    for loss in LOSSES[4:]:
        schedule.step(loss)
        resumed.step(loss)
    assert resumed.get_last_lr() == schedule.get_last_lr()
    assert resumed.last_epoch == len(LOSSES)
    assert "optimizer" not in schedule.state_dict()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: ScaledSGD(p, lr=0.1),
        lambda p: UnitNormSGD(p, lr=0.1, capturable=True, normalize=True),
        lambda p: invariant(AdamW, p, lr=0.1),
    ],
)
def test_it_drives_our_optimizers(make: Callable[[list[nn.Parameter]], Optimizer]) -> None:
    optimizer = make([nn.Parameter(torch.ones(2, 2))])
    schedule = BoldDriver(optimizer)
    assert isinstance(schedule, LRScheduler)
    schedule.step(1.0)
    schedule.step(2.0)
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"grow": 0.9}, "grow must be a finite number >= 1, got 0.9"),
        ({"grow": math.nan}, "grow must be"),
        ({"shrink": 1.0}, r"shrink must be in \(0, 1\), got 1.0"),
        ({"shrink": 0.0}, "shrink must be"),
    ],
)
def test_factors_that_make_no_sense_are_refused(options: dict[str, float], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        BoldDriver(optimizer_with(), **options)


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(OptionError, match="BoldDriver needs an Optimizer, got int"):
        BoldDriver(3)


def test_exponential_decay_is_torchs() -> None:
    optimizer = optimizer_with()
    schedule = ExponentialLR(optimizer, gamma=0.95)
    rates = torch.ones(3, dtype=torch.float64)
    for _ in range(10):
        optimizer.step()
        schedule.step()
        rates = exponential(rates)
    torch.testing.assert_close(rates, torch.full_like(rates, optimizer.param_groups[0]["lr"]))

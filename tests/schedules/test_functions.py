import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR

from symoptim.schedules.functions import cosine


@pytest.mark.parametrize("epochs", [1, 2, 7, 100])
def test_the_cosine_is_torchs(epochs: int) -> None:
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    schedule = CosineAnnealingLR(optimizer, epochs)
    start = torch.tensor(0.3, dtype=torch.float64)
    for done in range(epochs + 1):
        assert cosine(start, done, epochs).item() == pytest.approx(schedule.get_last_lr()[0], abs=1e-15)
        optimizer.step()
        schedule.step()


def test_after_the_last_epoch_the_cosine_does_not_rise_again() -> None:
    start = torch.tensor(0.3, dtype=torch.float64)
    assert cosine(start, 11, 10).item() == cosine(start, 10, 10).item() < 1e-16


def test_many_runs_at_once_move_like_each_alone() -> None:
    starts = torch.tensor([1.0, 0.1, 1e-3], dtype=torch.float64)
    together = cosine(starts, 3, 10)
    assert together.tolist() == [cosine(start, 3, 10).item() for start in starts]

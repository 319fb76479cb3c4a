"""A test environment stricter than production: warnings are errors, fresh memory is poisoned."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

# Two threads on two busy cores spin against each other and can be several times slower than one.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that was not written to reads NaN, so that no result can rest on it by luck."""
    empty_like = torch.empty_like

    def poisoned(like: Tensor, **options: Any) -> Tensor:
        made = empty_like(like, **options)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty_like", poisoned)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same numbers, whatever ran before it and in whatever order tests run."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)

"""A small network as a case, and small buffers: what is tested is not the speed of this machine."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from symoptim.bench import cases, clock, roofline
from symoptim.bench.cases import Case, Example, weights_of


def _make_network() -> Example:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5)
    )
    return Example(model, (torch.rand(2, 3, 4, 4),))


def _make_small() -> Case:
    model = _make_network().model
    return Case(name="small", title="a small network", weights=weights_of(model), network=_make_network)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Case]:
    """Maker of the case, which the command line knows too."""
    monkeypatch.setitem(clock.FLUSHED, "cpu", 2**12)
    monkeypatch.setitem(roofline.COPIED, "cpu", 2**16)
    monkeypatch.setitem(cases.CASES, "small", _make_small)
    return _make_small

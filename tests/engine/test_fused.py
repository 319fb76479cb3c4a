"""Triton's kernels, run on the CPU, against the closed form in float64."""

import sys
from collections.abc import Iterator

import pytest
import torch

from engine.triton_on_paper import install
from small import PIXELS, a_run, small_data
from symoptim.engine.fused.group import FusedGroup, can_fuse
from symoptim.engine.group import Group
from symoptim.engine.pairwise import Pairwise
from symoptim.engine.trainer import Trainer
from symoptim.models import arch1, arch2

KERNELS = ("symoptim.engine.fused.steps", "symoptim.engine.fused.layers")


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton as it is on paper, and kernels that were imported with it."""
    for name, module in install().items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in KERNELS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr("symoptim.engine.fused.group.find_spec", lambda _: object())
    yield
    for name in KERNELS:
        sys.modules.pop(name, None)


def trainer_of(architecture: str, depth: int, dtype: torch.dtype, rate: float = 1e-3) -> Trainer:
    make = {"arch1": arch1, "arch2": arch2}[architecture]
    runs = [a_run(update, seed=seed, rate=rate) for update in ("b-sgd", "sm", "un") for seed in (0, 1)]
    return Trainer(
        runs,
        lambda: make(depth, inputs=PIXELS, width=32, classes=4).to(dtype),
        small_data(dtype),
        batch=30,
        device=torch.device("cpu"),
    )


def whole(trainer: Trainer) -> Group:
    """All runs of a trainer as one group."""
    everything = slice(0, len(trainer.rates))
    return Group(everything, Pairwise(trainer.stack), trainer.steppers, trainer.images, trainer.tally)


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("architecture", ["arch1", "arch2"])
def test_kernels_step_as_the_closed_form_does(architecture: str, depth: int) -> None:
    exact, rounded = (trainer_of(architecture, depth, dtype) for dtype in (torch.float64, torch.float32))
    fused = FusedGroup(whole(rounded), rounded.rates)
    assert can_fuse(fused.group)
    for part in (slice(30), slice(30, 47)):  # the last batch of an epoch is smaller
        index = exact.images.train[:, part].contiguous()
        whole(exact).step(index)
        fused.step(index)
    assert rounded.tally.wrong.equal(exact.tally.wrong)
    torch.testing.assert_close(rounded.tally.loss, exact.tally.loss, rtol=1e-5, atol=0)
    for name, expected in {**exact.stack.parameters, **exact.stack.buffers}.items():
        found = {**rounded.stack.parameters, **rounded.stack.buffers}[name]
        torch.testing.assert_close(found, expected.to(found.dtype), rtol=1e-4, atol=1e-6, msg=name)

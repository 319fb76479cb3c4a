"""Triton's kernels, run on the CPU, against the closed form in float64."""

import dataclasses
import sys
from importlib import import_module
from typing import cast

import pytest
import torch

from symoptim.ensemble import UPDATES, Driven
from symoptim.ensemble.block_optimizers import DrivenOptimizer
from symoptim.ensemble.fast.closed_form import ClosedFormNetwork
from symoptim.ensemble.fast.fused_group import FusedGroup, can_fuse
from symoptim.ensemble.run_group import RunGroup
from symoptim.ensemble.trainer import Trainer
from symoptim.errors import OptionError
from symoptim.models import arch1, arch2
from tests.support.small import PIXELS, a_run, batch_of, small_data
from tests.support.triton_on_paper import on_paper

KERNELS = "symoptim.ensemble.fast.triton_kernels"


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels imported with Triton as it is on paper; torch itself does not get to see that one."""
    with pytest.MonkeyPatch.context() as importing:
        for name, module in on_paper().items():
            importing.setitem(sys.modules, name, module)
        importing.delitem(sys.modules, KERNELS, raising=False)
        kernels = import_module(KERNELS)
        importing.undo()
    monkeypatch.setitem(sys.modules, KERNELS, kernels)
    monkeypatch.setattr("symoptim.ensemble.fast.fused_group.find_spec", lambda _: object())


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


def whole(trainer: Trainer) -> RunGroup:
    """All runs of a trainer as one group."""
    count = len(trainer.rates)
    network, rows = ClosedFormNetwork(trainer.stack), torch.arange(count)
    return RunGroup(slice(0, count), network, trainer.optimizers, trainer.images, trainer.totals, rows)


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("architecture", ["arch1", "arch2"])
def test_kernels_step_as_the_closed_form_does(architecture: str, depth: int) -> None:
    exact, rounded = (trainer_of(architecture, depth, dtype) for dtype in (torch.float64, torch.float32))
    fused = FusedGroup(whole(rounded), rounded.rates)
    assert can_fuse(fused.group, 30)
    for part in (slice(30), slice(30, 47)):  # the last batch of an epoch is smaller
        batch = batch_of(exact.images.train, part)
        whole(exact).step(batch)
        fused.step(batch)
    assert rounded.totals.wrong.equal(exact.totals.wrong)
    torch.testing.assert_close(rounded.totals.loss, exact.totals.loss, rtol=1e-5, atol=0)
    for name, expected in {**exact.stack.parameters, **exact.stack.buffers}.items():
        found = {**rounded.stack.parameters, **rounded.stack.buffers}[name]
        torch.testing.assert_close(found, expected.to(found.dtype), rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.usefixtures("triton")
def test_a_run_that_diverges_becomes_nan_and_changes_no_other() -> None:
    calm, wild = (trainer_of("arch1", 2, torch.float32) for _ in range(2))
    wild.rates[0] = torch.inf
    for trainer in (calm, wild):
        fused = FusedGroup(whole(trainer), trainer.rates)
        for part in (slice(30), slice(30, 60)):
            fused.step(batch_of(trainer.images.train, part))
    assert wild.totals.loss[0].isnan()
    for name, found in wild.stack.parameters.items():
        assert found[1:].equal(calm.stack.parameters[name][1:]), name


@pytest.mark.usefixtures("triton")
def test_one_image_is_refused_where_batches_are_normalized() -> None:
    trainer = trainer_of("arch2", 2, torch.float32)
    fused = FusedGroup(whole(trainer), trainer.rates)
    with pytest.raises(OptionError, match="cannot learn from a batch of 1 image"):
        fused.step(batch_of(trainer.images.train, slice(1)))


@pytest.mark.usefixtures("triton")
def test_what_the_kernels_do_not_support_is_not_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not can_fuse(whole(trainer_of("arch1", 2, torch.float64)), 30)
    trainer = trainer_of("arch1", 2, torch.float32)
    assert can_fuse(whole(trainer), 30)
    assert not can_fuse(whole(trainer), 10_000)  # more than a program has registers for
    driven = DrivenOptimizer(cast("Driven", UPDATES["adamw"]), trainer.optimizers[0].block)
    assert not can_fuse(dataclasses.replace(whole(trainer), optimizers=[driven]), 30)
    monkeypatch.setattr("symoptim.ensemble.fast.fused_group.find_spec", lambda _: None)
    assert not can_fuse(whole(trainer), 30)

"""Hooks, profilers, schedulers and compilers treat a step as they do one of torch's own optimizers."""

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from symoptim import invariant
from symoptim.optim.sgd import ScaledSGD


def optimizer_of() -> ScaledSGD:
    weight = nn.Parameter(torch.randn(3, 4))
    weight.grad = torch.randn(3, 4)
    return ScaledSGD([weight], lr=0.1)


def test_hooks_of_an_optimizer_are_called_once() -> None:
    optimizer, heard = optimizer_of(), list[str]()
    optimizer.register_step_pre_hook(lambda *_: heard.append("before"))
    optimizer.register_step_post_hook(lambda *_: heard.append("after"))
    optimizer.step()
    assert heard == ["before", "after"]


def test_hooks_of_all_optimizers_are_called_once() -> None:
    optimizer, heard = optimizer_of(), list[Optimizer]()
    handles = [
        register_optimizer_step_pre_hook(lambda one, *_: heard.append(one)),
        register_optimizer_step_post_hook(lambda one, *_: heard.append(one)),
    ]
    try:
        optimizer.step()
    finally:
        for handle in handles:
            handle.remove()
    optimizer.step()
    assert heard == [optimizer, optimizer]


def test_hooks_are_called_once_where_a_compiler_follows() -> None:
    optimizer, heard = optimizer_of(), list[str]()
    optimizer.register_step_post_hook(lambda *_: heard.append("after"))
    torch.compile(optimizer.step, backend="eager")()
    assert heard == ["after"]


@pytest.mark.parametrize("kind", [ScaledSGD, functools.partial(invariant, torch.optim.AdamW)])
def test_a_compiler_leaves_a_step_alone_and_does_not_compile_it_for_every_shape(kind: Any) -> None:
    def compiled_frames(shapes: int) -> int:
        weights = [nn.Parameter(torch.randn(2 + number, 3)) for number in range(shapes)]
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        optimizer, heard = kind(weights, lr=0.1), list[str]()
        optimizer.register_step_post_hook(lambda *_: heard.append("after"))
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()  # pyright: ignore
        step = torch.compile(lambda: optimizer.step(), backend="eager")
        for _ in range(shapes):
            step()
        assert heard == ["after"] * shapes
        return torch._dynamo.utils.counters["frames"]["total"]  # pyright: ignore

    # Those of torch's own wrapping, which calls hooks.
    assert compiled_frames(2) == compiled_frames(12) <= 8


def test_a_hook_may_change_what_a_step_is_called_with() -> None:
    optimizer = optimizer_of()
    optimizer.register_step_pre_hook(lambda one, *_: ((one, lambda: 3.0), {}))
    assert optimizer.step() == 3.0


def test_a_profiler_finds_the_step_under_its_name() -> None:
    optimizer = optimizer_of()
    with torch.autograd.profiler.profile() as profile:
        optimizer.step()
    names = [event.name for event in profile.function_events]
    assert names.count("Optimizer.step#ScaledSGD.step") == 1


def test_a_scheduler_sees_that_a_step_was_taken(recwarn: pytest.WarningsRecorder) -> None:
    optimizer = optimizer_of()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.step()
    scheduler.step()
    assert not recwarn.list
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)

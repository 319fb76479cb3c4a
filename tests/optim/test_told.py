"""Hooks and profilers hear of a step once, as torch has it; without them torch's wrapping is left out."""

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from symoptim import invariant
from symoptim.optim.sgd import ScaledSGD


class Own(ScaledSGD):
    """Somebody's subclass, with a step of its own."""

    def step(self, closure: Any = None) -> Any:
        """Call the step of the class above."""
        return super().step(closure)


class Decorated(ScaledSGD):
    """Somebody's subclass whose step looks like that of the class above."""

    @functools.wraps(ScaledSGD.step)
    def step(self, closure: Any = None) -> Any:
        """Call the step of the class above."""
        return super().step(closure)


EVERY_KIND = pytest.mark.parametrize("kind", [ScaledSGD, Own, Decorated])


def optimizer_of(kind: type[ScaledSGD]) -> ScaledSGD:
    weight = nn.Parameter(torch.randn(3, 4))
    weight.grad = torch.randn(3, 4)
    return kind([weight], lr=0.1)


@EVERY_KIND
def test_hooks_of_an_optimizer_are_called_once(kind: type[ScaledSGD]) -> None:
    optimizer, heard = optimizer_of(kind), list[str]()
    optimizer_of(ScaledSGD).step()  # another of the parent class must not change that
    optimizer.register_step_pre_hook(lambda *_: heard.append("before"))
    optimizer.register_step_post_hook(lambda *_: heard.append("after"))
    optimizer.step()
    assert heard == ["before", "after"]


@EVERY_KIND
def test_hooks_of_all_optimizers_are_called_once(kind: type[ScaledSGD]) -> None:
    optimizer, heard = optimizer_of(kind), list[Optimizer]()
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


def test_hooks_are_called_once_by_a_step_that_was_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    original, optimizer, heard = ScaledSGD.step, optimizer_of(ScaledSGD), list[str]()
    monkeypatch.setattr(ScaledSGD, "step", lambda self, closure=None: original(self, closure))
    optimizer.register_step_pre_hook(lambda *_: heard.append("before"))
    optimizer.step()
    another = optimizer_of(ScaledSGD)
    another.register_step_pre_hook(lambda *_: heard.append("before"))
    another.step()
    assert heard == ["before", "before"]


def test_hooks_are_called_once_where_a_compiler_follows() -> None:
    optimizer, heard = optimizer_of(ScaledSGD), list[str]()
    optimizer.register_step_post_hook(lambda *_: heard.append("after"))
    torch.compile(optimizer.step, backend="eager")()
    assert heard == ["after"]


@pytest.mark.parametrize("kind", [ScaledSGD, functools.partial(invariant, torch.optim.AdamW)])
def test_a_compiler_leaves_a_step_alone_and_does_not_compile_it_for_every_shape(kind: Any) -> None:
    weights = [nn.Parameter(torch.randn(2 + number, 3)) for number in range(12)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer, heard = kind(weights, lr=0.1), list[str]()
    optimizer.register_step_post_hook(lambda *_: heard.append("after"))
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()  # pyright: ignore
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    step(), step()
    assert heard == ["after", "after"]
    assert torch._dynamo.utils.counters["frames"]["total"] <= 4  # pyright: ignore


def test_a_hook_may_change_what_a_step_is_called_with() -> None:
    optimizer = optimizer_of(ScaledSGD)
    optimizer.register_step_pre_hook(lambda one, *_: ((one, lambda: 3.0), {}))
    assert optimizer.step() == 3.0


@pytest.mark.parametrize("kind", [ScaledSGD, Own])
def test_a_profiler_finds_the_step_under_its_name(kind: type[ScaledSGD]) -> None:
    optimizer = optimizer_of(kind)
    with torch.autograd.profiler.profile() as profile:
        optimizer.step()
    names = [event.name for event in profile.function_events]
    assert names.count(f"Optimizer.step#{kind.__name__}.step") == 1


def test_where_nobody_listens_torch_wraps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = optimizer_of(ScaledSGD)

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(torch.autograd.profiler, "record_function", refuse)
    optimizer.step()
    optimizer.register_step_pre_hook(lambda *_: None)
    with pytest.raises(AssertionError):
        optimizer.step()


def test_a_scheduler_sees_that_a_step_was_taken(recwarn: pytest.WarningsRecorder) -> None:
    optimizer = optimizer_of(ScaledSGD)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.step()
    scheduler.step()
    assert not recwarn.list
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)

"""Steps that hooks and profilers are told of, at no cost where there are none, and compilers leave alone.

:class:`torch.optim.Optimizer` wraps the step of every class: profilers find it under its name, hooks are
called. That costs ten microseconds where nobody is listening, a tenth of a fused step.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
import torch.optim.optimizer as torch_optimizer
from torch.optim import Optimizer

# None of these names is public: there is no other way to ask whether anybody listens. A torch without them
# is asked to tell everybody.
_somebody = {0: None}
_is_profiled: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: True)
_before_all: Mapping[int, object] = getattr(torch_optimizer, "_global_optimizer_pre_hooks", _somebody)
_after_all: Mapping[int, object] = getattr(torch_optimizer, "_global_optimizer_post_hooks", _somebody)
_without_compiler: Any = getattr(torch, "_disable_dynamo", copy.copy)  # a function is its own copy

Step = TypeVar("Step", bound=Callable[..., Any])


def told(step: Step) -> Step:
    """The step, wrapped by torch wherever anybody is to be told.

    Args:
        step: method of an optimizer.

    Returns:
        A step that torch does not wrap once more. Where torch has wrapped the step of a subclass, which calls
        this one, hooks are not called twice.
    """
    as_torch_does: Any = Optimizer.profile_hook_step(step)
    left_alone: Callable[..., object] = _without_compiler(as_torch_does)

    @functools.wraps(step)
    def told_step(self: Optimizer, *arguments: Any, **named: Any) -> object:
        # What a compiler makes of a step is no faster than kernels, and torch 2.13's fails at some.
        if torch.compiler.is_compiling():
            return left_alone(self, *arguments, **named)
        # All that torch wraps has the same code.
        outermost = getattr(type(self).step, "__code__", None)
        watched = _is_watched(self) and outermost is not as_torch_does.__code__
        return (as_torch_does if watched else step)(self, *arguments, **named)

    wrapped: Any = told_step
    wrapped.hooked = True  # what torch looks for
    return wrapped


def _is_watched(watched: Any) -> bool:
    """Whether there are hooks, or a profiler is running."""
    own = watched._optimizer_step_pre_hooks or watched._optimizer_step_post_hooks
    return bool(own or _before_all or _after_all) or _is_profiled()

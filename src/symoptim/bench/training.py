"""The rest of a training step: seconds of forward and backward on a model's example."""

import statistics
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from symoptim.bench.clock import Clock
from symoptim.bench.tensors import CaseTensors
from symoptim.errors import OptionError

TURNS = 5


def seconds_of_passes(tensors: CaseTensors, clock: Clock) -> float:
    """Median time of forward and backward on the example of a case, in the precision of its tensors.

    The loss is the model's own where its output has one, else the sum of the means of its outputs.
    """
    assert tensors.example is not None
    model, *call = tensors.example
    arguments, keywords = tree_map_only(Tensor, _placing(tensors.device, tensors.dtype), tuple(call))

    def passes() -> None:
        cast("Any", loss_of(model(*arguments, **keywords))).backward()

    passes()  # the first is slower
    return statistics.median(clock.read(passes).seconds for _ in range(TURNS))


def loss_of(outputs: Any) -> Tensor:
    """The loss among a model's outputs, or the sum of their means.

    Raises:
        OptionError: no output has a gradient.

    >>> loss_of({"a": torch.ones(2, requires_grad=True), "b": torch.zeros(3, dtype=torch.int64)})
    tensor(1., grad_fn=<AddBackward0>)
    """
    loss = getattr(outputs, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    found = [one for one in tree_leaves(outputs) if isinstance(one, Tensor) and one.requires_grad]
    if not found:
        raise OptionError("no output of the model has a gradient")
    return sum((one.float().mean() for one in found), start=torch.zeros(()).to(found[0].device))


def _placing(device: torch.device, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda one: one.to(device, dtype) if one.is_floating_point() else one.to(device)

"""SGD in the full metric, for a whole block of runs: the symmetries of one network are those of all."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor
from torch.func import vmap

from symoptim.ensemble.products import Gradient, formed
from symoptim.ensemble.registry import Full
from symoptim.ensemble.steppers import Block, Stateless
from symoptim.metric.full_metric import FullMetric
from symoptim.optim.model_metric import warn_of_unmeasured
from symoptim.symmetry.discover import discover
from symoptim.symmetry.tensors import model_tensors
from symoptim.updates.catalog import PLAIN
from symoptim.updates.step import StepOptions, step


class FullStepper(Stateless):
    """Every run in its own metric; which blocks are zero is taken from the first network that was made."""

    def __init__(self, update: Full, block: Block, example: Tensor) -> None:
        """Find the symmetries of the stack's network.

        Args:
            update: which gauge.
            block: runs to serve.
            example: a batch of inputs.
        """
        self.block = block
        template = block.stack.template
        spec = discover(template, (example.cpu(),))
        metric = FullMetric.of(spec, model_tensors(template), update.gauge)
        warn_of_unmeasured(metric, spec)
        self.metric = metric.on(block.rates.device, block.rates.dtype)
        self.moved = [name for name, terms in metric.layout.terms.items() if terms]

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Gradient]) -> None:
        """Step every parameter of the block, each run with its own rate and metric."""
        stack, here = self.block.stack, self.block.here
        tensors = {**stack.parameters, **stack.buffers}
        squares = vmap(partial(self.metric.factors, power=2.0))(
            {name: tensors[name][here] for name in self.moved}
        )
        for name, gradient in gradients.items():
            weights, direction = stack.parameters[name][here], formed(gradient)
            for factor in squares.get(name, ()):
                direction = direction * factor
            options = StepOptions(lr=self.block.rate(weights.ndim))
            weights.copy_(step(PLAIN, weights, direction, options).weights)

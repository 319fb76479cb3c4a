"""How gradients move the stacked weights: all runs of a pure update at once, or an optimizer for each run.

A block optimizer serves a block of neighboring runs, ``rows`` of the run axis. Its weights are views of the
stacked ones, and are made anew when runs leave. Gradients come as tensors, or as factors that a pure update
need not multiply (:mod:`.fast.factored_gradient`).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import vmap

from symoptim.ensemble.fast.factored_gradient import (
    FACTORED_STEPS,
    FactoredGradient,
    Gradient,
    dense_gradient,
)
from symoptim.ensemble.registry import Driven, Full, Groups, Pure
from symoptim.ensemble.stacked_model import StackedModel
from symoptim.geometry.filters import Axes
from symoptim.metric.full_metric import FullMetric
from symoptim.optim.model_metric import warn_of_unmeasured
from symoptim.routing import Role, axes_of, route
from symoptim.symmetry.discover import discover
from symoptim.symmetry.tensors import model_tensors
from symoptim.updates.catalog import PLAIN, Update
from symoptim.updates.step import StepOptions, step


class RunBlock(NamedTuple):
    """Runs ``rows`` of a stack, and the rates of all runs of that stack, ``(r,)``."""

    stack: StackedModel
    rates: Tensor
    rows: range

    @property
    def runs(self) -> slice:
        """The runs, as an index."""
        return slice(self.rows.start, self.rows.stop)

    def rate(self, axes: int) -> Tensor:
        """Rates of the runs, broadcastable to weights of that many axes."""
        return self.rates[self.runs].reshape(-1, *[1] * (axes - 1))


class BlockOptimizer:
    """Moves the weights of a block of runs; unless a subclass has a state, there is none to save."""

    block: RunBlock

    def step(self, gradients: Mapping[str, Gradient]) -> None:
        """Take one step; gradients are those of the block's runs, parameters without one stay."""
        raise NotImplementedError

    def rebind(self, block: RunBlock, kept: Sequence[int]) -> None:  # noqa: ARG002 - no state to select from
        """Serve this block from now on: of the runs served so far, those at ``kept``."""
        self.block = block

    def state_dict(self) -> list[dict[str, Any]]:
        """What has to be saved, one entry per run."""
        return []

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Load what :meth:`state_dict` saved."""


class PureOptimizer(BlockOptimizer):
    """One pure update for the whole block."""

    def __init__(self, update: Pure, block: RunBlock) -> None:
        """Bring the weights to where the update can begin: before the first gradient is computed there."""
        self.update = update
        self.roles = _roles(block.stack)
        self.block = block
        with torch.no_grad():
            for name in block.stack.trainable():
                weights, update_here, over = self._weights_and_update(name)
                weights.copy_(update_here.start(weights, over))

    def _weights_and_update(self, name: str) -> tuple[Tensor, Update, Axes]:
        """Weights of one parameter in this block, the update they get, and the axes of a filter."""
        weights = self.block.stack.parameters[name][self.block.runs]
        role = self.roles[name]
        over = axes_of(role.geometry, role.axis, weights.ndim - 1)
        return weights, self.update.updates[role.geometry], over

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Gradient]) -> None:
        """Step every parameter of the block, each run with its own rate."""
        for name, gradient in gradients.items():
            weights, update, over = self._weights_and_update(name)
            rate = self.block.rate(weights.ndim)
            factored_step = FACTORED_STEPS.get((update, over))
            if isinstance(gradient, FactoredGradient) and factored_step:
                factored_step(weights, gradient, rate)
            elif isinstance(gradient, Tensor) and update == PLAIN:
                weights.addcmul_(gradient, rate, value=-1)
            else:
                options = StepOptions(lr=rate)
                weights.copy_(step(update, weights, dense_gradient(gradient), options, over=over).weights)


class FullMetricOptimizer(BlockOptimizer):
    """SGD in the full metric, of every run's own weights: the symmetries of one network are those of all."""

    def __init__(self, update: Full, block: RunBlock, example: Tensor) -> None:
        """Discover the symmetries of the stack's network.

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
        stack, runs = self.block.stack, self.block.runs
        tensors = {**stack.parameters, **stack.buffers}
        squares = vmap(partial(self.metric.factors, power=2.0))(
            {name: tensors[name][runs] for name in self.moved}
        )
        for name, gradient in gradients.items():
            weights, direction = stack.parameters[name][runs], dense_gradient(gradient)
            for factor in squares.get(name, ()):
                direction = direction * factor
            options = StepOptions(lr=self.block.rate(weights.ndim))
            weights.copy_(step(PLAIN, weights, direction, options).weights)


class DrivenOptimizer(BlockOptimizer):
    """A ``torch.optim`` optimizer per run, whose parameters are views of the stacked ones."""

    def __init__(self, update: Driven, block: RunBlock) -> None:
        """Build the optimizers."""
        self.block = block
        roles = _roles(block.stack)
        self.views: list[dict[str, nn.Parameter]] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        for row in block.rows:
            views = {
                name: nn.Parameter(stacked.detach()[row]) for name, stacked in block.stack.trainable().items()
            }
            groups: Groups = [
                {"params": [view], "geometry": roles[name].geometry, "axis": roles[name].axis}
                for name, view in views.items()
            ]
            self.views.append(views)
            self.optimizers.append(update.make(groups, block.rates[row], block.rates.is_cuda))

    def step(self, gradients: Mapping[str, Gradient]) -> None:
        """Let every optimizer step with its run's gradients."""
        tensors = {name: dense_gradient(gradient) for name, gradient in gradients.items()}
        for index, (views, optimizer) in enumerate(zip(self.views, self.optimizers, strict=True)):
            for name, view in views.items():
                view.grad = tensors[name][index] if name in tensors else None
            optimizer.step()

    def rebind(self, block: RunBlock, kept: Sequence[int]) -> None:
        """Serve this block from now on, with the optimizers at ``kept``."""
        self.block = block
        self.views = [self.views[index] for index in kept]
        self.optimizers = [self.optimizers[index] for index in kept]
        for row, views, optimizer in zip(block.rows, self.views, self.optimizers, strict=True):
            for name, view in views.items():
                view.data = block.stack.parameters[name].detach()[row]
                view.grad = None
            for group in optimizer.param_groups:
                group["lr"] = block.rates[row]

    def state_dict(self) -> list[dict[str, Any]]:
        """State of every optimizer."""
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Load the optimizers; the rates stay those of the block."""
        for optimizer, saved in zip(self.optimizers, state, strict=True):
            optimizer.load_state_dict(saved)
        self.rebind(self.block, range(len(self.optimizers)))


def _roles(stack: StackedModel) -> dict[str, Role]:
    return {routed.names[0]: routed.role for routed in route(stack.template)}

"""How gradients move the stacked weights: all runs of a pure update at once, or an optimizer for each run.

A stepper serves a block of neighboring runs, ``rows`` of the run axis. Both kinds only *point* at the
stack's tensors, and are pointed anew when runs leave. Gradients come as they are, or as products that a pure
update need not form (:mod:`.products`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from symoptim.ensemble.products import WALKS, Gradient, Product, formed
from symoptim.ensemble.registry import Driven, Pure
from symoptim.ensemble.stack import Stack
from symoptim.geometry.filters import Axes
from symoptim.routing import Role, axes_of, route
from symoptim.updates.catalog import PLAIN, Update
from symoptim.updates.step import StepOptions, step


class Block(NamedTuple):
    """Runs ``rows`` of a stack, and the rates of all runs of that stack, ``(r,)``."""

    stack: Stack
    rates: Tensor
    rows: range

    @property
    def here(self) -> slice:
        """The runs, as an index."""
        return slice(self.rows.start, self.rows.stop)

    def rate(self, axes: int) -> Tensor:
        """Rates of the runs, ready to multiply weights of that many axes."""
        return self.rates[self.here].reshape(-1, *[1] * (axes - 1))


class Stepper(Protocol):
    """Moves the weights of a block of runs."""

    block: Block

    def step(self, gradients: Mapping[str, Gradient]) -> None:
        """Take one step; gradients are those of the block's runs, parameters without one stay."""
        ...

    def point_at(self, block: Block, kept: Sequence[int]) -> None:
        """Serve this block from now on: of the runs served so far, those at ``kept``."""
        ...

    def state_dict(self) -> list[dict[str, Any]]:
        """What has to be saved, one entry per run."""
        ...

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Take over what :meth:`state_dict` saved."""
        ...


def _roles(stack: Stack) -> dict[str, Role]:
    return {routed.names[0]: routed.role for routed in route(stack.template)}


class Stateless:
    """A stepper that remembers nothing from step to step."""

    block: Block

    def point_at(self, block: Block, kept: Sequence[int]) -> None:  # noqa: ARG002 - there is no state to sift
        """Serve this block from now on."""
        self.block = block

    def state_dict(self) -> list[dict[str, Any]]:
        """Nothing."""
        return []

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Nothing to take over."""


class PureStepper(Stateless):
    """One pure update for the whole block."""

    def __init__(self, update: Pure, block: Block) -> None:
        """Serve that block."""
        self.update = update
        self.roles = _roles(block.stack)
        self.block = block
        with torch.no_grad():
            for name in block.stack.trainable():
                weights, update_here, over = self._piece(name)
                # Before the first gradient is taken: it has to be one at weights the update can begin from.
                weights.copy_(update_here.start(weights, over))

    def _piece(self, name: str) -> tuple[Tensor, Update, Axes]:
        """Weights of one parameter in this block, the update they get, and what a filter extends over."""
        weights = self.block.stack.parameters[name][self.block.here]
        role = self.roles[name]
        return (
            weights,
            self.update.updates[role.geometry],
            axes_of(role.geometry, role.axis, weights.ndim - 1),
        )

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Gradient]) -> None:
        """Step every parameter of the block, each run with its own rate."""
        for name, gradient in gradients.items():
            weights, update, over = self._piece(name)
            rate = self.block.rate(weights.ndim)
            if isinstance(gradient, Product) and (walk := WALKS.get((update, over))):
                walk(weights, gradient, rate)
            elif isinstance(gradient, Tensor) and update == PLAIN:
                weights.addcmul_(gradient, rate, value=-1)
            else:
                moved = step(update, weights, formed(gradient), StepOptions(lr=rate), over=over)
                weights.copy_(moved.weights)


class DrivenStepper:
    """A ``torch.optim`` optimizer per run, whose parameters are views of the stacked ones."""

    def __init__(self, update: Driven, block: Block) -> None:
        """Build the optimizers."""
        self.block = block
        roles = _roles(block.stack)
        self.views: list[dict[str, nn.Parameter]] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        for row in block.rows:
            views = {
                name: nn.Parameter(stacked.detach()[row]) for name, stacked in block.stack.trainable().items()
            }
            groups: list[dict[str, Any]] = [
                {"params": [view], "geometry": roles[name].geometry, "axis": roles[name].axis}
                for name, view in views.items()
            ]
            self.views.append(views)
            self.optimizers.append(update.make(groups, block.rates[row], block.rates.is_cuda))

    def step(self, gradients: Mapping[str, Gradient]) -> None:
        """Let every optimizer step on its run's share of the gradients."""
        tensors = {name: formed(gradient) for name, gradient in gradients.items()}
        for place, (views, optimizer) in enumerate(zip(self.views, self.optimizers, strict=True)):
            for name, view in views.items():
                view.grad = tensors[name][place] if name in tensors else None
            optimizer.step()

    def point_at(self, block: Block, kept: Sequence[int]) -> None:
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
        self.point_at(self.block, range(len(self.optimizers)))

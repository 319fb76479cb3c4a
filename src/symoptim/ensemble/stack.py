"""Many networks of one shape as one: parameters and buffers with a leading run axis.

Any ``nn.Module`` will do that ``torch.func.vmap`` can map over; batch normalization keeps its running
averages per run. Axis letters: r run, b example.
"""

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from symoptim.ensemble.numerics import seeded
from symoptim.errors import OptionError

Factory = Callable[[], nn.Module]


def _aliases(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Every name a parameter or buffer is registered by, and the first one, which it is stacked by."""
    first: dict[int, str] = {}
    for named in (model.named_parameters, model.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            yield name, first.setdefault(id(tensor), name)


class Stack:
    """Networks with stacked weights, one per seed.

    >>> stack = Stack(lambda: nn.Linear(3, 2), seeds=[0, 1, 2, 3])
    >>> stack.scores(torch.zeros(4, 5, 3), training=True).shape
    torch.Size([4, 5, 2])
    """

    def __init__(self, factory: Factory, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        """Make one network per seed, on the CPU: so that a seed means the same weights on every device.

        Args:
            factory: makes a freshly initialized network.
            seeds: one per run.
            device: where the stacked weights live.

        Raises:
            OptionError: ``factory`` is a network.
        """
        if isinstance(factory, nn.Module):
            raise OptionError(
                f"the engine makes its networks itself: give it `lambda: {type(factory).__name__}(...)`"
            )
        made: dict[int, nn.Module] = {}
        for seed in dict.fromkeys(seeds):  # runs of one seed start from the same weights
            with seeded(seed):
                made[seed] = factory()
        models = [made[seed] for seed in seeds]
        parameters, buffers = stack_module_state(models)
        self.template = copy.deepcopy(models[0])
        """One of the networks, as it was made: for its layers and their roles."""
        # Another to call, the stacked tensors standing in for its own: torch may leave some of them behind.
        self._called = copy.deepcopy(models[0]).to(device)
        self.parameters: dict[str, Tensor] = {
            name: stacked.detach().to(device).requires_grad_(models[0].get_parameter(name).requires_grad)
            for name, stacked in parameters.items()
        }
        self.buffers: dict[str, Tensor] = {name: b.detach().to(device) for name, b in buffers.items()}
        self._inputs_first: set[str] = set()

    @torch.no_grad()
    def put_inputs_first(self, name: str) -> None:
        """From now on have a parameter ``(r, o, i)`` lie in memory as ``(r, i, o)``; it stays what it is."""
        self._inputs_first.add(name)
        stacked = self.parameters[name]
        self.parameters[name] = stacked.mT.contiguous().mT.requires_grad_(stacked.requires_grad)

    def trainable(self) -> dict[str, Tensor]:
        """The stacked parameters that are trained."""
        return {name: stacked for name, stacked in self.parameters.items() if stacked.requires_grad}

    def scores(self, inputs: Tensor, *, training: bool) -> Tensor:
        """Scores of every run on its own inputs, ``(r, b, ...) -> (r, b, classes)``.

        Args:
            inputs: a batch for every run.
            training: whether layers behave as in training; then running averages move.

        Returns:
            The scores.

        Raises:
            OptionError: the network draws random numbers.
        """
        self._called.train(training)
        call = vmap(self._one, randomness="error")
        try:
            return call(self.parameters, self.buffers, inputs)
        except RuntimeError as error:
            if "randomness" not in str(error):
                raise
            raise OptionError(
                "this network draws random numbers while it computes (dropout?): a run's result would depend "
                "on its company; train it on its own"
            ) from error

    def first_scores(self, inputs: Tensor) -> object:
        """What the first run makes of inputs ``(b, ...)`` in evaluation, whatever that is."""
        self._called.eval()
        parameters, buffers = (
            {name: stacked[0] for name, stacked in tensors.items()}
            for tensors in (self.parameters, self.buffers)
        )
        device = next(iter(self.parameters.values())).device
        return self._one(parameters, buffers, inputs.to(device))

    def _one(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(self._called, (parameters, buffers), (inputs,))

    def network_states(self, rows: Sequence[int]) -> list[dict[str, Tensor]]:
        """State dicts of some runs' networks, on the CPU; tied parameters under every name they have."""
        # A copy per tensor, not per run: a device is waited for that many times.
        taken = {
            name: t.detach()[list(rows)].cpu() for name, t in {**self.parameters, **self.buffers}.items()
        }
        aliases = dict(_aliases(self.template))
        return [
            {
                name: taken[aliases[name]][place].clone(memory_format=torch.contiguous_format)
                for name in self.template.state_dict()
            }
            for place in range(len(rows))
        ]

    @torch.no_grad()
    def keep(self, rows: Tensor) -> None:
        """Go on with these rows of the run axis only."""
        for name, stacked in self.parameters.items():
            self.parameters[name] = stacked[rows].requires_grad_(stacked.requires_grad)
            if name in self._inputs_first:
                self.put_inputs_first(name)
        for name, stacked in self.buffers.items():
            self.buffers[name] = stacked[rows]

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """All weights and running averages."""
        return {"parameters": self.parameters, "buffers": self.buffers}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Take over weights and running averages saved by :meth:`state_dict`."""
        for name, saved in state["parameters"].items():
            self.parameters[name].copy_(saved)
        for name, saved in state["buffers"].items():
            self.buffers[name].copy_(saved)

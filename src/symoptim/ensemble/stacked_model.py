"""Many networks of one shape as one: parameters and buffers with a leading run axis.

Any ``nn.Module`` will do that ``torch.func.vmap`` can map over; batch normalization keeps its running
averages per run. Axis letters: r run, b example.
"""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from symoptim.ensemble.images import Split
from symoptim.errors import OptionError
from symoptim.support.devices import full_float32
from symoptim.support.seeds import seeded

Factory = Callable[[], nn.Module]


class StackedModel:
    """Networks with stacked weights, one per seed.

    >>> stack = StackedModel(lambda: nn.Linear(3, 2), seeds=[0, 1, 2, 3])
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
                f"an ensemble makes its networks itself: give it `lambda: {type(factory).__name__}(...)`"
            )
        made: dict[int, nn.Module] = {}
        for seed in dict.fromkeys(seeds):  # runs of one seed start from the same weights
            with seeded(seed):
                made[seed] = factory()
        models = [made[seed] for seed in seeds]
        parameters, buffers = stack_module_state(models)
        self.template = copy.deepcopy(models[0])
        """One of the networks, as it was made: for its layers and their roles."""
        # Another copy to call with the stacked tensors: torch may leave some of them in the module.
        self._called = copy.deepcopy(models[0]).to(device)
        self.parameters: dict[str, Tensor] = {
            name: stacked.detach().to(device).requires_grad_(models[0].get_parameter(name).requires_grad)
            for name, stacked in parameters.items()
        }
        self.buffers: dict[str, Tensor] = {name: b.detach().to(device) for name, b in buffers.items()}
        self._inputs_first: set[str] = set()

    @torch.no_grad()
    def store_inputs_first(self, name: str) -> None:
        """Store a parameter ``(r, o, i)`` as ``(r, i, o)`` in memory from now on; its values stay."""
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
        call = vmap(self._call, randomness="error")
        try:
            return call(self.parameters, self.buffers, inputs)
        except RuntimeError as error:
            if "randomness" not in str(error):
                raise
            raise OptionError(
                "this network draws random numbers while it computes (dropout?): a run's result would depend "
                "on the runs beside it; train it on its own"
            ) from error

    def first_output(self, inputs: Tensor) -> object:
        """The first network's output of inputs ``(b, ...)`` in evaluation, whatever it is."""
        self._called.eval()
        parameters = {name: stacked[0] for name, stacked in self.parameters.items()}
        buffers = {name: stacked[0] for name, stacked in self.buffers.items()}
        return self._call(parameters, buffers, inputs.to(next(iter(parameters.values())).device))

    def _call(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(self._called, (parameters, buffers), (inputs,))

    def network_states(self, rows: Sequence[int]) -> list[dict[str, Tensor]]:
        """State dicts of some runs' networks, on the CPU; tied parameters under every name they have."""
        # One copy per tensor, not per run: each is a wait for the device.
        taken = {
            name: t.detach()[list(rows)].cpu() for name, t in {**self.parameters, **self.buffers}.items()
        }
        first_names: dict[int, str] = {}  # of a tied tensor: the one it is stacked by
        names: dict[str, str] = {}
        for named in (self.template.named_parameters, self.template.named_buffers):
            for name, tensor in named(remove_duplicate=False):
                names[name] = first_names.setdefault(id(tensor), name)
        return [
            {
                name: taken[names[name]][index].clone(memory_format=torch.contiguous_format)
                for name in self.template.state_dict()
            }
            for index in range(len(rows))
        ]

    @torch.no_grad()
    def keep(self, rows: Tensor) -> None:
        """Drop all rows of the run axis but these."""
        for name, stacked in self.parameters.items():
            self.parameters[name] = stacked[rows].requires_grad_(stacked.requires_grad)
            if name in self._inputs_first:
                self.store_inputs_first(name)
        for name, stacked in self.buffers.items():
            self.buffers[name] = stacked[rows]

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """All weights and running averages."""
        return {"parameters": self.parameters, "buffers": self.buffers}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Copy in weights and running averages saved by :meth:`state_dict`."""
        for name, saved in state["parameters"].items():
            self.parameters[name].copy_(saved)
        for name, saved in state["buffers"].items():
            self.buffers[name].copy_(saved)


def check_model(stack: StackedModel, data: Split, batch: int) -> None:
    """Refuse images that the networks cannot take, and training labels beyond their scores.

    Args:
        stack: the networks, of which one is called on a batch, in evaluation; it stays as it is.
        data: images and labels.
        batch: images at a time.

    Raises:
        OptionError: model and data do not fit.

    >>> images, labels = torch.zeros(4, 3), torch.tensor([0, 1, 2, 1])
    >>> check_model(StackedModel(lambda: nn.Linear(3, 2), [0]), Split(images, labels, images, labels), 4)
    Traceback (most recent call last):
    symoptim.errors.OptionError: labels go up to 2, but the network has scores for 0 to 1: give it 3 outputs
    """
    images = data.train_images[:batch]
    try:
        with torch.no_grad(), full_float32():
            scores = stack.first_output(images)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        shape, dtype = tuple(images.shape[1:]), images.dtype
        raise OptionError(f"the network cannot take images of shape {shape}, {dtype}: {error}") from error
    if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != len(images):
        found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise OptionError(
            f"the network turns images {tuple(images.shape)} into {found}; an ensemble needs a tensor of "
            "scores, (images, classes)"
        )
    last, classes = int(data.train_labels.max()), scores.shape[1]
    if last >= classes:
        raise OptionError(
            f"labels go up to {last}, but the network has scores for 0 to {classes - 1}: give it {last + 1} "
            "outputs"
        )

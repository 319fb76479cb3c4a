"""Epochs of many runs at once: batches, steps, evaluation. What the runs do between epochs is elsewhere.

Axis letters: r run, b example, n training images of a run.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from symoptim.data.split import Split
from symoptim.engine.capture import Replayed
from symoptim.engine.full_stepper import FullStepper
from symoptim.engine.numerics import derive_seed
from symoptim.engine.registry import UPDATES, Driven, Full, Pure, require_updates
from symoptim.engine.run import Run
from symoptim.engine.shuffle import permutations
from symoptim.engine.stack import Factory, Stack
from symoptim.engine.steppers import Block, DrivenStepper, PureStepper, Stepper
from symoptim.errors import OptionError

IMAGES_AT_ONCE = 60_000  # of all runs together, when errors are measured: 190 MB of MNIST's pixels


class Trained(NamedTuple):
    """What training met in an epoch, per run ``(r,)``: mean loss per image, share of wrong answers."""

    loss: Tensor
    error: Tensor


class Trainer:
    """Stacked runs with their data: trains them epoch by epoch and measures their errors."""

    def __init__(
        self, runs: Sequence[Run], factory: Factory, data: Split, *, batch: int, device: torch.device
    ) -> None:
        """Start every run from the weights and on the split its seed gives.

        Args:
            runs: at least one; all of the same numbers of images.
            factory: makes the network.
            data: images and labels; copied to the device.
            batch: images per step; the last step of an epoch takes what is left.
            device: where to train.
        """
        _require_stackable(runs, data, batch)
        self.runs = list(runs)
        self.batch = batch
        self.device = device
        self.data = Split(*(tensor.to(device) for tensor in data))
        self.stack = Stack(factory, [derive_seed(run.seed, "weights") for run in runs], device)
        dtype = next(iter(self.stack.trainable().values())).dtype
        self.rates = torch.tensor([run.rate for run in runs], dtype=dtype, device=device)
        self._draw_split()
        self._make_room()
        self.steppers: list[Stepper] = [
            self._stepper_of(Block(self.stack, self.rates, rows)) for rows in _blocks(self.runs)
        ]

    def _stepper_of(self, block: Block) -> Stepper:
        """The stepper of a block of runs that have not trained yet."""
        match UPDATES[self.runs[block.rows.start].update]:
            case Pure() as update:
                return PureStepper(update, block)
            case Full() as update:
                return FullStepper(update, block, self.data.train_images[:2])
            case Driven() as update:
                return DrivenStepper(update, block)

    def _draw_split(self) -> None:
        run = self.runs[0]
        seeds = [derive_seed(run.seed, "split") for run in self.runs]
        drawn = permutations(seeds, 0, len(self.data.train_labels), self.device)
        self.train_index = drawn[:, : run.train].contiguous()
        self.validation_index = drawn[:, run.train : run.train + run.validation].contiguous()

    def _make_room(self) -> None:
        """Tensors a recorded step reads and writes; they stay until runs leave."""
        count = len(self.runs)
        self.order = torch.zeros_like(self.train_index)
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.loss = torch.zeros(count, dtype=torch.float64, device=self.device)
        self.wrong = torch.zeros(count, dtype=torch.int64, device=self.device)
        self.steps: dict[int, Replayed] = {}

    def train_epoch(self, epoch: int) -> Trained:
        """Let every run see each of its training images once, in the order of that epoch."""
        size = self.train_index.shape[1]
        seeds = [derive_seed(run.seed, "batches") for run in self.runs]
        self.order.copy_(self.train_index.gather(1, permutations(seeds, epoch, size, self.device)))
        for tensor in (self.position, self.loss, self.wrong):
            tensor.zero_()
        for start in range(0, size, self.batch):
            self._step_of(min(self.batch, size - start))()
        return Trained(self.loss.cpu() / size, _share(self.wrong, size))

    def _step_of(self, size: int) -> Replayed:
        """The step on ``size`` images; it is recorded anew whenever runs have left."""
        if size not in self.steps:
            offsets = torch.arange(size, device=self.device)
            self.steps[size] = Replayed(lambda: self._step(offsets), self.device)
        return self.steps[size]

    def _step(self, offsets: Tensor) -> None:
        """One step of all runs on the images at ``position``."""
        index = self.order.index_select(1, self.position + offsets)
        labels = self.data.train_labels[index]
        scores = self.stack.scores(self.data.train_images[index], training=True)
        losses = cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        trained = self.stack.trainable()
        # The sum over runs only stands for "each its own": no run's loss depends on another's weights.
        found = torch.autograd.grad(losses.sum(), list(trained.values()), allow_unused=True)
        gradients = {
            name: gradient
            for name, gradient in zip(trained, found, strict=True)
            if gradient is not None  # pyright: ignore[reportUnnecessaryComparison] - torch's stubs say never
        }
        for stepper in self.steppers:
            stepper.step(gradients)
        with torch.no_grad():
            self.loss += losses.sum(dim=1)
            self.wrong += (scores.argmax(dim=2) != labels).sum(dim=1)
            self.position += len(offsets)

    def validation_errors(self) -> Tensor:
        """Share of every run's own validation images it gets wrong, ``(r,)``."""
        size = self.validation_index.shape[1]
        wrong = torch.zeros(len(self.runs), dtype=torch.int64, device=self.device)
        for start in range(0, size, self._at_once()):
            index = self.validation_index[:, start : start + self._at_once()]
            wrong += self._wrong(self.data.train_images[index], self.data.train_labels[index])
        return _share(wrong, size)

    def test_errors(self) -> Tensor:
        """Share of the test images every run gets wrong, ``(r,)``."""
        count, size = len(self.runs), len(self.data.test_labels)
        wrong = torch.zeros(count, dtype=torch.int64, device=self.device)
        for start in range(0, size, self._at_once()):
            images = self.data.test_images[start : start + self._at_once()]
            labels = self.data.test_labels[start : start + self._at_once()]
            wrong += self._wrong(images.expand(count, *images.shape), labels.expand(count, -1))
        return _share(wrong, size)

    def _at_once(self) -> int:
        return max(1, IMAGES_AT_ONCE // len(self.runs))

    @torch.no_grad()
    def _wrong(self, images: Tensor, labels: Tensor) -> Tensor:
        scores = self.stack.scores(images, training=False)
        return (scores.argmax(dim=2) != labels).sum(dim=1)

    def set_rates(self, rates: Sequence[float]) -> None:
        """Give every run its rate for the next epoch."""
        self.rates.copy_(torch.tensor(rates, dtype=torch.float64))

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with these runs only; nothing of them changes."""
        rows = torch.tensor(kept, device=self.device)
        old_blocks = _blocks(self.runs)
        self.runs = [self.runs[index] for index in kept]
        self.stack.keep(rows)
        self.rates = self.rates[rows]
        self.train_index = self.train_index[rows]
        self.validation_index = self.validation_index[rows]
        self._make_room()
        steppers: list[Stepper] = []
        start = 0
        for stepper, block in zip(self.steppers, old_blocks, strict=True):
            local = [index - block.start for index in kept if index in block]
            if local:
                stepper.point_at(Block(self.stack, self.rates, range(start, start + len(local))), local)
                steppers.append(stepper)
                start += len(local)
        self.steppers = steppers

    def state_dict(self) -> dict[str, Any]:
        """All that changes while training."""
        return {"stack": self.stack.state_dict(), "steppers": [s.state_dict() for s in self.steppers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` saved, of the same runs."""
        self.stack.load_state_dict(state["stack"])
        for stepper, saved in zip(self.steppers, state["steppers"], strict=True):
            stepper.load_state_dict(saved)


def _share(counts: Tensor, size: int) -> Tensor:
    """Counts as shares; divided on the CPU, for devices round divisions differently."""
    return counts.cpu().double() / size


def _blocks(runs: Sequence[Run]) -> list[range]:
    """Stretches of neighboring runs with the same update."""
    blocks: list[range] = []
    for _, stretch in itertools.groupby(enumerate(runs), key=lambda pair: pair[1].update):
        rows = [index for index, _ in stretch]
        blocks.append(range(rows[0], rows[-1] + 1))
    return blocks


def _require_stackable(runs: Sequence[Run], data: Split, batch: int) -> None:
    if not runs:
        raise OptionError("there is nothing to train: give at least one run")
    require_updates(run.update for run in runs)
    if batch < 1:
        raise OptionError(f"batch must be at least 1, got {batch}")
    sizes = {(run.train, run.validation) for run in runs}
    if len(sizes) > 1:
        raise OptionError(f"runs trained together need the same train and validation sizes, got {sizes}")
    ((train, validation),) = sizes
    if train + validation > len(data.train_labels):
        raise OptionError(
            f"train + validation is {train} + {validation} images, but there are {len(data.train_labels)}"
        )

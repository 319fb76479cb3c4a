"""Epochs of many runs at once: batches, steps, evaluation. What the runs do between epochs is elsewhere.

An epoch is put on its way and read off later, so that several trainers can keep one device busy.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symoptim.ensemble.capture import Lane, Replayed
from symoptim.ensemble.fit import require_fit
from symoptim.ensemble.full_stepper import FullStepper
from symoptim.ensemble.fused.group import FusedGroup, can_fuse
from symoptim.ensemble.group import Group, Tally, blocks_of, neighbors, sources_of
from symoptim.ensemble.images import Batch, DrawnImages, Images
from symoptim.ensemble.ink import pays
from symoptim.ensemble.numerics import derive_seed
from symoptim.ensemble.pairwise import FIRST_FILTERS, Pairwise, is_pairwise
from symoptim.ensemble.passes import Autograd
from symoptim.ensemble.registry import UPDATES, Driven, Full, Pure, require_updates
from symoptim.ensemble.run import Run
from symoptim.ensemble.stack import Factory, Stack
from symoptim.ensemble.steppers import Block, DrivenStepper, PureStepper, Stepper
from symoptim.errors import OptionError
from symoptim.paper.data.split import Split

# Runs that go through the paper's networks together on a CPU: few enough for a cache, many enough for the
# calls not to count.
RUNS_AT_ONCE = 64


class Measured(NamedTuple):
    """What an epoch gave, per run ``(r,)``: mean loss per image, shares of wrong answers or NaN."""

    loss: Tensor
    train_error: Tensor
    validation_error: Tensor
    test_error: Tensor


class Trainer:
    """Stacked runs with their data: trains them epoch by epoch and measures their errors."""

    def __init__(
        self,
        runs: Sequence[Run],
        factory: Factory,
        data: Split,
        *,
        batch: int,
        device: torch.device,
        test: bool = True,
    ) -> None:
        """Start every run from the weights and on the split its seed gives.

        Args:
            runs: at least one; all of the same numbers of images.
            factory: makes the network.
            data: images and labels; copied to the device.
            batch: images per step; the last step of an epoch takes what is left.
            device: where to train.
            test: whether to measure the test error.
        """
        _require_stackable(runs, data, batch)
        self.batch = batch
        self.device = device
        self.test = test
        self.lane = Lane(device)
        self.stack = Stack(factory, [derive_seed(run.seed, "weights") for run in runs], device)
        require_fit(self.stack, data, batch)
        dtype = next(iter(self.stack.trainable().values())).dtype
        self.rates = torch.tensor([run.rate for run in runs], dtype=dtype, device=device)
        in_groups = device.type == "cpu" and is_pairwise(self.stack.template)
        self.runs_at_once = RUNS_AT_ONCE if in_groups else len(runs)
        draws = in_groups and pays(data, self.stack.parameters[FIRST_FILTERS])
        if draws:
            self.stack.put_inputs_first(FIRST_FILTERS)
        self.images = (DrawnImages if draws else Images)(runs, data, device)
        self.steppers: list[Stepper] = [
            self._stepper(runs[rows.start].update, Block(self.stack, self.rates, rows))
            for rows in blocks_of(runs, at_most=self.runs_at_once)
        ]
        self._make_room()

    def _stepper(self, update: str, block: Block) -> Stepper:
        """The stepper of a block of runs that have not trained yet."""
        match UPDATES[update]:
            case Pure() as pure:
                return PureStepper(pure, block)
            case Full() as full:
                return FullStepper(full, block, self.images.data.train_images[:2])
            case Driven() as driven:
                return DrivenStepper(driven, block)

    def _make_room(self) -> None:
        """What recorded work reads and writes; it stays until runs leave."""
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.tally = Tally(len(self.rates), self.device)
        self.groups = list(self._grouped())
        self.steps: dict[int, Replayed] = {}
        self.measuring = Replayed(self._measure, self.device)

    def _grouped(self) -> Iterator[Group | FusedGroup]:
        """Runs that pass together: all, unless smaller groups are faster."""
        for steppers in neighbors(self.steppers, at_most=self.runs_at_once):
            blocks = [stepper.block.rows for stepper in steppers]
            here = slice(blocks[0].start, blocks[-1].stop)
            everything = list(range(here.start, here.stop))
            if is_pairwise(self.stack.template):
                sources = sources_of(self.images.seeds, blocks)
                network = Pairwise(self.stack, here, 1 if sources == everything else len(blocks))
            else:
                sources, network = everything, Autograd(self.stack)
            rows = torch.tensor(sources, device=self.device)
            group = Group(here, network, steppers, self.images, self.tally, rows)
            yield FusedGroup(group, self.rates) if self._can_fuse(group) else group

    def _can_fuse(self, group: Group) -> bool:
        return self.rates.is_cuda and can_fuse(group, self.batch)

    def start_epoch(self, epoch: int) -> None:
        """Let every run see each of its training images once, in the order of that epoch; then measure.

        On CUDA nothing is waited for.
        """
        with self.lane.entered():
            self.images.shuffle(epoch)
            self.position.zero_()
            self.tally.clear()
            steps, rest = divmod(self.images.order.shape[1], self.batch)
            self._steps_of(self.batch)(steps)
            if rest:
                self._steps_of(rest)()
            self.measuring()

    def finish_epoch(self) -> Measured:
        """What the epoch that was started gave, on the CPU; waits for it."""
        with self.lane.entered():
            trained, validated = self.images.order.shape[1], self.images.validation.shape[1]
            wrong = _share(self.tally.test, len(self.images.data.test_labels))
            return Measured(
                self.tally.loss.cpu() / trained,
                _share(self.tally.wrong, trained),
                _share(self.tally.validation, validated),
                wrong if self.test else torch.full_like(wrong, torch.nan),
            )

    def _steps_of(self, size: int) -> Replayed:
        """Steps on ``size`` images each; they are recorded anew whenever runs have left."""
        if size not in self.steps:
            offsets = torch.arange(size, device=self.device)
            self.steps[size] = Replayed(lambda: self._step(offsets), self.device)
        return self.steps[size]

    def _step(self, offsets: Tensor) -> None:
        """One step of all runs on the images at ``position``."""
        batch = Batch(self.images.order, self.position, offsets)
        for group in self.groups:
            group.step(batch)
        self.position += len(offsets)

    def _measure(self) -> None:
        for group in self.groups:
            group.measure(test=self.test)

    def set_rates(self, rates: Sequence[float]) -> None:
        """Give every run its rate for the next epoch."""
        self.rates.copy_(torch.tensor(rates, dtype=torch.float64))

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with these runs only; nothing of them changes."""
        rows = torch.tensor(kept, device=self.device)
        self.images.keep(kept)
        self.stack.keep(rows)
        self.rates = self.rates[rows]
        steppers: list[Stepper] = []
        start = 0
        for stepper in self.steppers:
            block = stepper.block.rows
            local = [index - block.start for index in kept if index in block]
            if local:
                stepper.point_at(Block(self.stack, self.rates, range(start, start + len(local))), local)
                steppers.append(stepper)
                start += len(local)
        self.steppers = steppers
        self._make_room()

    def state_dict(self) -> dict[str, Any]:
        """All that changes while training."""
        return {"stack": self.stack.state_dict(), "steppers": [s.state_dict() for s in self.steppers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` saved, of the same runs."""
        self.stack.load_state_dict(state["stack"])
        for stepper, saved in zip(self.steppers, state["steppers"], strict=True):
            stepper.load_state_dict(saved)
        self._make_room()  # recorded work knows tensors that may have been replaced


def _share(counts: Tensor, size: int) -> Tensor:
    """Counts as shares; divided on the CPU, for devices round divisions differently."""
    return counts.cpu().double() / size


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

"""Epochs of many runs at once: batches, steps, evaluation. :mod:`.ensemble` has what happens between epochs.

An epoch is started, and its result read later, so that several trainers can keep one device busy.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symoptim.ensemble.block_optimizers import (
    BlockOptimizer,
    DrivenOptimizer,
    FullMetricOptimizer,
    PureOptimizer,
    RunBlock,
)
from symoptim.ensemble.cuda_graph import GraphedFunction, SideStream
from symoptim.ensemble.fast.closed_form import FIRST_FILTERS, ClosedFormNetwork, is_pairwise
from symoptim.ensemble.fast.fused_group import FusedGroup, can_fuse
from symoptim.ensemble.fast.sparse_images import sparse_is_faster
from symoptim.ensemble.images import Batch, RunImages, Split
from symoptim.ensemble.registry import UPDATES, Driven, Full, Pure, require_updates
from symoptim.ensemble.run import Run
from symoptim.ensemble.run_group import AutogradNetwork, EpochTotals, RunGroup
from symoptim.ensemble.stacked_model import Factory, StackedModel, check_model
from symoptim.errors import OptionError
from symoptim.support.seeds import derive_seed

# Runs that go through the paper's networks together on a CPU: few enough for a cache, many enough for the
# calls not to count.
RUNS_AT_ONCE = 64


class EpochMetrics(NamedTuple):
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
        self.stream = SideStream(device)
        self.stack = StackedModel(factory, [derive_seed(run.seed, "weights") for run in runs], device)
        check_model(self.stack, data, batch)
        dtype = next(iter(self.stack.trainable().values())).dtype
        self.rates = torch.tensor([run.rate for run in runs], dtype=dtype, device=device)
        in_groups = device.type == "cpu" and is_pairwise(self.stack.template)
        self.runs_at_once = RUNS_AT_ONCE if in_groups else len(runs)
        sets = data.train_images, data.test_images
        sparse = in_groups and sparse_is_faster(sets, self.stack.parameters[FIRST_FILTERS])
        if sparse:
            self.stack.store_inputs_first(FIRST_FILTERS)
        self.images = RunImages(runs, data, device, sparse=sparse)
        self.optimizers = [
            self._optimizer(runs[rows.start].update, RunBlock(self.stack, self.rates, rows))
            for rows in _blocks_of_equal_update(runs, at_most=self.runs_at_once)
        ]
        self._allocate()

    def _optimizer(self, update: str, block: RunBlock) -> BlockOptimizer:
        """The optimizer of a block of runs that have not trained yet."""
        match UPDATES[update]:
            case Pure() as pure:
                return PureOptimizer(pure, block)
            case Full() as full:
                return FullMetricOptimizer(full, block, self.images.data.train_images[:2])
            case Driven() as driven:
                return DrivenOptimizer(driven, block)

    def _allocate(self) -> None:
        """Make what recorded graphs read and write; it stays until runs leave."""
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.totals = EpochTotals(len(self.rates), self.device)
        self.groups = list(self._groups())
        self.steps: dict[int, GraphedFunction] = {}
        self.measuring = GraphedFunction(self._measure, self.device)

    def _groups(self) -> Iterator[RunGroup | FusedGroup]:
        """Runs that pass together: all, unless smaller groups are faster."""
        for optimizers in _neighbors(self.optimizers, at_most=self.runs_at_once):
            blocks = [optimizer.block.rows for optimizer in optimizers]
            here = slice(blocks[0].start, blocks[-1].stop)
            everything = list(range(here.start, here.stop))
            if is_pairwise(self.stack.template):
                rows = rows_of_images(self.images.seeds, blocks)
                network = ClosedFormNetwork(self.stack, here, 1 if rows == everything else len(blocks))
            else:
                rows, network = everything, AutogradNetwork(self.stack)
            image_rows = torch.tensor(rows, device=self.device)
            group = RunGroup(here, network, optimizers, self.images, self.totals, image_rows)
            fused = self.rates.is_cuda and can_fuse(group, self.batch)
            yield FusedGroup(group, self.rates) if fused else group

    def start_epoch(self, epoch: int) -> None:
        """Let every run see each of its training images once, in the order of that epoch; then measure.

        On CUDA nothing is waited for.
        """
        with self.stream.entered():
            self.images.shuffle(epoch)
            self.position.zero_()
            self.totals.clear()
            steps, rest = divmod(self.images.order.shape[1], self.batch)
            self._step_on(self.batch)(steps)
            if rest:
                self._step_on(rest)()
            self.measuring()

    def finish_epoch(self) -> EpochMetrics:
        """What the epoch that was started gave, on the CPU; waits for it."""
        with self.stream.entered():
            trained, validated = self.images.order.shape[1], self.images.validation.shape[1]
            test_error = _share(self.totals.test, len(self.images.data.test_labels))
            return EpochMetrics(
                self.totals.loss.cpu() / trained,
                _share(self.totals.wrong, trained),
                _share(self.totals.validation, validated),
                test_error if self.test else torch.full_like(test_error, torch.nan),
            )

    def _step_on(self, size: int) -> GraphedFunction:
        """A step on ``size`` images; it is recorded anew whenever runs have left."""
        if size not in self.steps:
            offsets = torch.arange(size, device=self.device)
            self.steps[size] = GraphedFunction(lambda: self._step(offsets), self.device)
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
        """Drop all runs but these, which do not change."""
        rows = torch.tensor(kept, device=self.device)
        self.images.keep(kept)
        self.stack.keep(rows)
        self.rates = self.rates[rows]
        optimizers: list[BlockOptimizer] = []
        start = 0
        for optimizer in self.optimizers:
            block = optimizer.block.rows
            local = [index - block.start for index in kept if index in block]
            if local:
                optimizer.rebind(RunBlock(self.stack, self.rates, range(start, start + len(local))), local)
                optimizers.append(optimizer)
                start += len(local)
        self.optimizers = optimizers
        self._allocate()

    def state_dict(self) -> dict[str, Any]:
        """All that changes while training."""
        return {"stack": self.stack.state_dict(), "steppers": [o.state_dict() for o in self.optimizers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` saved, of the same runs."""
        self.stack.load_state_dict(state["stack"])
        for optimizer, saved in zip(self.optimizers, state["steppers"], strict=True):
            optimizer.load_state_dict(saved)
        self._allocate()  # recorded graphs have the addresses of tensors that may have been replaced


def rows_of_images(seeds: Sequence[int], blocks: Sequence[range]) -> list[int]:
    """Rows whose images will do for all rows of the blocks: runs of one seed see the same.

    One row per seed, if every block has the same seeds, each equally often and side by side; else all rows.

    >>> rows_of_images([7, 7, 8, 8, 7, 7, 8, 8], [range(4), range(4, 8)])
    [0, 2]
    >>> rows_of_images([7, 7, 8, 8, 7, 8], [range(4), range(4, 6)])
    [0, 1, 2, 3, 4, 5]
    """
    mine = [seeds[row] for row in blocks[0]]
    distinct = list(dict.fromkeys(mine))
    repeats = len(mine) // len(distinct)
    regular = [seed for seed in distinct for _ in range(repeats)]
    if all([seeds[row] for row in block] == regular for block in blocks):
        return list(blocks[0][::repeats])
    return [row for block in blocks for row in block]


def _blocks_of_equal_update(runs: Sequence[Run], *, at_most: int) -> list[range]:
    """Rows of neighboring runs with the same update, at most so many together."""
    blocks: list[range] = []
    for _, neighbors in itertools.groupby(enumerate(runs), key=lambda pair: pair[1].update):
        rows = [index for index, _ in neighbors]
        starts = range(rows[0], rows[-1] + 1, at_most)
        blocks += [range(start, min(start + at_most, rows[-1] + 1)) for start in starts]
    return blocks


def _neighbors(optimizers: Sequence[BlockOptimizer], *, at_most: int) -> Iterator[list[BlockOptimizer]]:
    """Optimizers of neighboring blocks, of at most so many runs together."""
    together: list[BlockOptimizer] = []
    for optimizer in optimizers:
        if together and optimizer.block.rows.stop - together[0].block.rows.start > at_most:
            yield together
            together = []
        together.append(optimizer)
    yield together


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

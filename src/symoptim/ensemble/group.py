"""Neighboring runs that go through their networks together: a step of all, and their errors."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from symoptim.ensemble.images import Batch, Images
from symoptim.ensemble.passes import Passes
from symoptim.ensemble.run import Run
from symoptim.ensemble.steppers import Stepper

IMAGES_AT_ONCE = 60_000  # of all runs together, when errors are measured: 190 MB of MNIST's pixels


class Tally:
    """What an epoch meets, per run ``(r,)``: the sum of losses, and how many images are wrong."""

    def __init__(self, count: int, device: torch.device) -> None:
        """Nothing yet, of that many runs."""
        self.loss = torch.zeros(count, dtype=torch.float64, device=device)
        self.wrong, self.validation, self.test = (
            torch.zeros(count, dtype=torch.int64, device=device) for _ in range(3)
        )

    def clear(self) -> None:
        """Begin anew."""
        for counts in (self.loss, self.wrong, self.validation, self.test):
            counts.zero_()


@dataclass(frozen=True, slots=True)
class Group:
    """Runs ``here`` of the stack: their networks, what moves their weights, their images."""

    here: slice
    network: Passes
    steppers: Sequence[Stepper]
    images: Images
    tally: Tally
    sources: Tensor
    """Rows of the stack whose images are those of all runs ``here``, ``(s,)``; see :func:`sources_of`."""

    def step(self, batch: Batch) -> None:
        """One step of every run on its training images of a batch of the whole stack."""
        taken = self.images.at(batch.index.index_select(0, self.sources))
        losses, wrong, gradients = self.network.train(*taken)
        for stepper in self.steppers:
            rows = stepper.block.rows
            mine = slice(rows.start - self.here.start, rows.stop - self.here.start)
            stepper.step({name: gradient[mine] for name, gradient in gradients.items()})
        self.tally.loss[self.here] += losses.sum(dim=1)
        self.tally.wrong[self.here] += wrong

    def measure(self, *, test: bool) -> None:
        """Count wrong answers among each run's validation images, and perhaps among the test images."""
        at_once = max(1, IMAGES_AT_ONCE // (self.here.stop - self.here.start))
        for images, labels in self.images.validated(self.sources, at_once):
            self.tally.validation[self.here] += self.network.wrong(images, labels)
        for images, labels in self.images.tested(at_once) if test else ():
            self.tally.test[self.here] += self.network.wrong(images, labels)


def sources_of(seeds: Sequence[int], blocks: Sequence[range]) -> list[int]:
    """Rows whose images will do for all rows of the blocks: runs of one seed see the same.

    One row per seed, if every block has the same seeds, each equally often and side by side; else all rows.

    >>> sources_of([7, 7, 8, 8, 7, 7, 8, 8], [range(4), range(4, 8)])
    [0, 2]
    >>> sources_of([7, 7, 8, 8, 7, 8], [range(4), range(4, 6)])
    [0, 1, 2, 3, 4, 5]
    """
    mine = [seeds[row] for row in blocks[0]]
    distinct = list(dict.fromkeys(mine))
    alike = len(mine) // len(distinct)
    regular = [seed for seed in distinct for _ in range(alike)]
    if all([seeds[row] for row in block] == regular for block in blocks):
        return list(blocks[0][::alike])
    return [row for block in blocks for row in block]


def blocks_of(runs: Sequence[Run], *, at_most: int) -> list[range]:
    """Stretches of neighboring runs with the same update, each of at most so many."""
    blocks: list[range] = []
    for _, stretch in itertools.groupby(enumerate(runs), key=lambda pair: pair[1].update):
        rows = [index for index, _ in stretch]
        starts = range(rows[0], rows[-1] + 1, at_most)
        blocks += [range(start, min(start + at_most, rows[-1] + 1)) for start in starts]
    return blocks


def neighbors(steppers: Sequence[Stepper], *, at_most: int) -> Iterator[list[Stepper]]:
    """Stretches of neighboring steppers, each of at most so many runs together."""
    stretch: list[Stepper] = []
    for stepper in steppers:
        if stretch and stepper.block.rows.stop - stretch[0].block.rows.start > at_most:
            yield stretch
            stretch = []
        stretch.append(stepper)
    yield stretch

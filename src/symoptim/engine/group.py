"""Neighboring runs that go through their networks together: a step of all, and their errors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from symoptim.engine.images import Images
from symoptim.engine.passes import Passes
from symoptim.engine.steppers import Stepper

IMAGES_AT_ONCE = 60_000  # of all runs together, when errors are measured: 190 MB of MNIST's pixels


class Tally:
    """What an epoch meets, per run ``(r,)``: the sum of losses, and how many images are wrong."""

    def __init__(self, count: int, device: torch.device) -> None:
        """Nothing yet, of that many runs."""
        self.loss = torch.zeros(count, dtype=torch.float64, device=device)
        self.wrong, self.validation, self.test = torch.zeros(3, count, dtype=torch.int64, device=device)

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

    def step(self, index: Tensor) -> None:
        """One step of every run on the training images of these numbers, ``(r, b)`` of the whole stack."""
        losses, wrong, gradients = self.network.train(*self.images.at(index[self.here]))
        for stepper in self.steppers:
            rows = stepper.block.rows
            mine = slice(rows.start - self.here.start, rows.stop - self.here.start)
            stepper.step({name: gradient[mine] for name, gradient in gradients.items()})
        self.tally.loss[self.here] += losses.sum(dim=1)
        self.tally.wrong[self.here] += wrong

    def measure(self, *, test: bool) -> None:
        """Count wrong answers among each run's validation images, and perhaps among the test images."""
        at_once = max(1, IMAGES_AT_ONCE // (self.here.stop - self.here.start))
        for images, labels in self.images.validated(self.here, at_once):
            self.tally.validation[self.here] += self.network.wrong(images, labels)
        for images, labels in self.images.tested(at_once) if test else ():
            self.tally.test[self.here] += self.network.wrong(images, labels)

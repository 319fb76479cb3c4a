"""The images of every run: which it trains on and in which order, which it is validated on.

Axis letters: r run, b example, n training images of a run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from symoptim.ensemble.ink import Drawn, Ink
from symoptim.ensemble.numerics import derive_seed
from symoptim.ensemble.run import Run
from symoptim.ensemble.shuffle import permutations
from symoptim.paper.data.split import Split


@dataclass(frozen=True)
class Batch:
    """What runs take next: of ``order`` ``(r, n)``, from ``position`` ``(1,)`` on, at ``offsets`` ``(b,)``.

    >>> Batch(torch.tensor([[7, 5, 6, 4]]), torch.tensor([1]), torch.arange(2)).index
    tensor([[5, 6]])
    """

    order: Tensor
    position: Tensor
    offsets: Tensor

    @cached_property
    def index(self) -> Tensor:
        """Numbers of the images, ``(r, b)``."""
        return self.order.index_select(1, self.position + self.offsets)


class Images:
    """One data set, dealt to every run by its seed."""

    def __init__(self, runs: Sequence[Run], data: Split, device: torch.device) -> None:
        """Deal out the training images; runs are all of the same numbers of images."""
        self.data = data.to(device)
        self.device = device
        self.seeds = [run.seed for run in runs]
        train, validation = runs[0].train, runs[0].validation
        drawn = self._permutations("split", 0, len(data.train_labels))
        self.train = drawn[:, :train].contiguous()
        self.validation = drawn[:, train : train + validation].contiguous()
        self.order = torch.zeros_like(self.train)
        """Numbers of the training images in the order of this epoch, ``(r, n)``."""
        self._room = self.data.train_images[:0].clone()

    def _permutations(self, purpose: str, epoch: int, size: int) -> Tensor:
        return permutations([derive_seed(seed, purpose) for seed in self.seeds], epoch, size, self.device)

    def shuffle(self, epoch: int) -> None:
        """Put the training images into the order of that epoch."""
        self.order.copy_(self.train.gather(1, self._permutations("batches", epoch, self.train.shape[1])))

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with these runs only."""
        rows = torch.tensor(kept, device=self.device)
        self.seeds = [self.seeds[index] for index in kept]
        self.train, self.validation, self.order = (
            table[rows] for table in (self.train, self.validation, self.order)
        )

    def at(self, index: Tensor) -> tuple[Tensor | Drawn, Tensor]:
        """Training images and labels by their numbers ``(r, b)``; on a CPU the images stay until the next."""
        pixels, numbers = self.data.train_images, index.flatten()
        images = torch.index_select(pixels, 0, numbers, out=self._room_for(len(numbers)))
        return images.view(*index.shape, *pixels.shape[1:]), self.data.train_labels[index]

    def _room_for(self, count: int) -> Tensor | None:
        """Where that many images go: on a CPU always to the same place, for new memory costs more."""
        if self.device.type != "cpu":
            return None
        if count > len(self._room):
            self._room = self.data.train_images.new_empty(count, *self.data.train_images.shape[1:])
        return self._room[:count]

    def validated(self, rows: Tensor, at_once: int) -> Iterator[tuple[Tensor | Drawn, Tensor]]:
        """Validation images and labels of some runs, ``at_once`` of every run at a time."""
        numbers = self.validation.index_select(0, rows)
        for start in range(0, numbers.shape[1], at_once):
            yield self.at(numbers[:, start : start + at_once])

    def tested(self, at_once: int) -> Iterator[tuple[Tensor | Drawn, Tensor]]:
        """Test images and labels, the same for all runs, ``at_once`` at a time."""
        for start in range(0, len(self.data.test_labels), at_once):
            part = slice(start, start + at_once)
            yield self.data.test_images[part], self.data.test_labels[part]


class DrawnImages(Images):
    """The same, as lists of pixels that are not zero: nothing is gathered."""

    def __init__(self, runs: Sequence[Run], data: Split, device: torch.device) -> None:
        """Deal out the training images, and list their pixels."""
        super().__init__(runs, data, device)
        self.train_ink = Ink.of(data.train_images)

    @cached_property
    def test_ink(self) -> Ink:
        """Of the test images, if anybody asks for them."""
        return Ink.of(self.data.test_images)

    def at(self, index: Tensor) -> tuple[Drawn, Tensor]:
        """Training images and labels by their numbers ``(r, b)``."""
        return Drawn(self.train_ink, index.contiguous()), self.data.train_labels[index]

    def tested(self, at_once: int) -> Iterator[tuple[Drawn, Tensor]]:
        """Test images and labels, the same for all runs, ``at_once`` at a time."""
        count = len(self.data.test_labels)
        for start in range(0, count, at_once):
            numbers = torch.arange(start, min(start + at_once, count))
            yield Drawn(self.test_ink, numbers), self.data.test_labels[numbers]

"""Images and labels, and each run's share of them: what it trains on in which order, what validates it.

Axis letters: r run, b example, n training images of a run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.ensemble.fast.sparse_images import SparseBatch, SparseImages
from symoptim.ensemble.run import Run
from symoptim.support.seeds import derive_seed, permutations


class Split(NamedTuple):
    """A data set: images ``(n, ...)`` and labels ``(n,)``, for training and for testing.

    >>> images, labels = torch.rand(10, 64), torch.randint(4, (10,))
    >>> Split(images[:8], labels[:8], images[8:], labels[8:]).test_labels.shape
    torch.Size([2])
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def to(self, device: torch.device) -> "Split":
        """The same on a device; tensors that are there already are not copied."""
        return Split(*(tensor.to(device) for tensor in self))


@dataclass(frozen=True)
class Batch:
    """The runs' next images: of ``order`` ``(r, n)``, from ``position`` ``(1,)`` on, at ``offsets`` ``(b,)``.

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


class RunImages:
    """One data set, dealt to every run by its seed."""

    def __init__(
        self, runs: Sequence[Run], data: Split, device: torch.device, *, sparse: bool = False
    ) -> None:
        """Draw every run's training and validation images.

        Args:
            runs: all of the same numbers of images.
            data: is copied to the device.
            device: of all tensors.
            sparse: whether batches are sparse; on a CPU only.
        """
        self.data = data.to(device)
        self.device = device
        self.seeds = [run.seed for run in runs]
        train, validation = runs[0].train, runs[0].validation
        drawn = self._permutations("split", 0, len(data.train_labels))
        self.train = drawn[:, :train].contiguous()
        self.validation = drawn[:, train : train + validation].contiguous()
        self.order = torch.zeros_like(self.train)
        """Numbers of the training images in the order of this epoch, ``(r, n)``."""
        self._buffer = self.data.train_images[:0].clone()
        self.sparse = SparseImages.of(data.train_images) if sparse else None

    @cached_property
    def _sparse_test(self) -> SparseImages:
        """The test images, compressed when they are first asked for."""
        return SparseImages.of(self.data.test_images)

    def _permutations(self, purpose: str, epoch: int, size: int) -> Tensor:
        return permutations([derive_seed(seed, purpose) for seed in self.seeds], epoch, size, self.device)

    def shuffle(self, epoch: int) -> None:
        """Put the training images into the order of that epoch."""
        self.order.copy_(self.train.gather(1, self._permutations("batches", epoch, self.train.shape[1])))

    def keep(self, kept: Sequence[int]) -> None:
        """Drop all runs but these."""
        rows = torch.tensor(kept, device=self.device)
        self.seeds = [self.seeds[index] for index in kept]
        self.train, self.validation, self.order = (
            table[rows] for table in (self.train, self.validation, self.order)
        )

    def at(self, index: Tensor) -> tuple[Tensor | SparseBatch, Tensor]:
        """Training images and labels by number ``(r, b)``; on a CPU the next call overwrites the images."""
        labels = self.data.train_labels[index]
        if self.sparse:
            return SparseBatch(self.sparse, index.contiguous()), labels
        pixels, numbers, out = self.data.train_images, index.flatten(), None
        if self.device.type == "cpu":  # always the same memory: to allocate some takes longer
            if len(numbers) > len(self._buffer):
                self._buffer = pixels.new_empty(len(numbers), *pixels.shape[1:])
            out = self._buffer[: len(numbers)]
        images = torch.index_select(pixels, 0, numbers, out=out)
        return images.view(*index.shape, *pixels.shape[1:]), labels

    def validated(self, rows: Tensor, at_once: int) -> Iterator[tuple[Tensor | SparseBatch, Tensor]]:
        """Validation images and labels of some runs, ``at_once`` of every run at a time."""
        numbers = self.validation.index_select(0, rows)
        for start in range(0, numbers.shape[1], at_once):
            yield self.at(numbers[:, start : start + at_once])

    def tested(self, at_once: int) -> Iterator[tuple[Tensor | SparseBatch, Tensor]]:
        """Test images and labels, the same for all runs, ``at_once`` at a time."""
        count = len(self.data.test_labels)
        for start in range(0, count, at_once):
            part = slice(start, min(start + at_once, count))
            images = self.data.test_images[part]
            if self.sparse:
                images = SparseBatch(self._sparse_test, torch.arange(part.start, part.stop))
            yield images, self.data.test_labels[part]

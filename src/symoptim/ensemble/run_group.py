"""Neighboring runs that go through their networks together: a step of all of them, and their errors.

:class:`AutogradNetwork` serves every network, and is the reference of any faster way to the same numbers.

Axis letters: r run, b example, s row of images that some runs share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from symoptim.ensemble.block_optimizers import BlockOptimizer
from symoptim.ensemble.fast.factored_gradient import Gradient
from symoptim.ensemble.fast.sparse_images import SparseBatch, dense_images
from symoptim.ensemble.images import Batch, RunImages
from symoptim.ensemble.stacked_model import StackedModel

IMAGES_AT_ONCE = 60_000  # of all runs together, when errors are measured: 190 MB of MNIST's pixels


class BatchResult(NamedTuple):
    """Losses of every run ``(r, b)``, numbers of wrong answers ``(r,)``, gradients of the summed losses."""

    losses: Tensor
    wrong: Tensor
    gradients: Mapping[str, Gradient]
    """By name of the parameter; those the loss does not depend on are left out."""


class StackedNetwork(Protocol):
    """Networks that can be trained and tested."""

    def train(self, images: Tensor | SparseBatch, labels: Tensor) -> BatchResult:
        """Pass a batch ``(r, b, ...)`` forward and backward, as in training: running averages move.

        Networks may take ``(s, b, ...)``, each for several runs; see :func:`.trainer.rows_of_images`.
        """
        ...

    def count_wrong(self, images: Tensor | SparseBatch, labels: Tensor) -> Tensor:
        """Number of images every run gets wrong, ``(r,)``, of its own ``(r, b, ...)`` or of ``(b, ...)``."""
        ...


class AutogradNetwork:
    """Any network, by torch's own differentiation."""

    def __init__(self, stack: StackedModel) -> None:
        """Serve all runs of a stack."""
        self.stack = stack

    def train(self, images: Tensor | SparseBatch, labels: Tensor) -> BatchResult:
        """Pass a batch forward and backward."""
        scores = self.stack.scores(dense_images(images), training=True)
        losses = cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        trained = self.stack.trainable()
        # The gradient of the sum over runs is that of every run: no loss depends on another run's weights.
        found = torch.autograd.grad(losses.sum(), list(trained.values()), allow_unused=True)
        gradients = {
            name: gradient
            for name, gradient in zip(trained, found, strict=True)
            if gradient is not None  # pyright: ignore[reportUnnecessaryComparison] - torch's stubs say never
        }
        return BatchResult(losses.detach(), _wrong(scores, labels), gradients)

    @torch.no_grad()
    def count_wrong(self, images: Tensor | SparseBatch, labels: Tensor) -> Tensor:
        """Number of images every run gets wrong."""
        images = dense_images(images)
        if labels.ndim == 1:
            count = len(next(iter(self.stack.parameters.values())))
            images, labels = images.expand(count, *images.shape), labels.expand(count, -1)
        return _wrong(self.stack.scores(images, training=False), labels)


def _wrong(scores: Tensor, labels: Tensor) -> Tensor:
    return (scores.argmax(dim=2) != labels).sum(dim=1)


class EpochTotals:
    """Totals of an epoch, per run ``(r,)``: the sum of losses, and numbers of wrong answers."""

    def __init__(self, count: int, device: torch.device) -> None:
        """Zeros, for that many runs."""
        self.loss = torch.zeros(count, dtype=torch.float64, device=device)
        self.wrong, self.validation, self.test = (
            torch.zeros(count, dtype=torch.int64, device=device) for _ in range(3)
        )

    def clear(self) -> None:
        """Set all to zero."""
        for counts in (self.loss, self.wrong, self.validation, self.test):
            counts.zero_()


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs ``here`` of the stack: their networks, what moves their weights, their images."""

    here: slice
    network: StackedNetwork
    optimizers: Sequence[BlockOptimizer]
    images: RunImages
    totals: EpochTotals
    image_rows: Tensor
    """Rows of the stack whose images are those of all runs ``here``, ``(s,)``."""

    def step(self, batch: Batch) -> None:
        """One step of every run on its training images of a batch of the whole stack."""
        images, labels = self.images.at(batch.index.index_select(0, self.image_rows))
        losses, wrong, gradients = self.network.train(images, labels)
        for optimizer in self.optimizers:
            rows = optimizer.block.rows
            mine = slice(rows.start - self.here.start, rows.stop - self.here.start)
            optimizer.step({name: gradient[mine] for name, gradient in gradients.items()})
        self.totals.loss[self.here] += losses.sum(dim=1)
        self.totals.wrong[self.here] += wrong

    def measure(self, *, test: bool) -> None:
        """Count wrong answers among each run's validation images, and if asked among the test images."""
        at_once = max(1, IMAGES_AT_ONCE // (self.here.stop - self.here.start))
        for images, labels in self.images.validated(self.image_rows, at_once):
            self.totals.validation[self.here] += self.network.count_wrong(images, labels)
        for images, labels in self.images.tested(at_once) if test else ():
            self.totals.test[self.here] += self.network.count_wrong(images, labels)

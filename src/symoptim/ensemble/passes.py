"""Through stacked networks and back: what a training step has to know of a batch, and errors of many images.

:class:`Autograd` serves every network, and is the meaning of any faster way to the same numbers.

Axis letters: r run, b example.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from symoptim.ensemble.ink import Drawn, pixels_of
from symoptim.ensemble.products import Gradient
from symoptim.ensemble.stack import Stack


class Passed(NamedTuple):
    """What a batch gave every run: its losses ``(r, b)``, wrong answers ``(r,)``, gradients of their sum."""

    losses: Tensor
    wrong: Tensor
    gradients: Mapping[str, Gradient]
    """By name of the parameter; those the loss does not depend on are left out."""


class Passes(Protocol):
    """Networks that can be trained and tested."""

    def train(self, images: Tensor | Drawn, labels: Tensor) -> Passed:
        """Pass a batch ``(r, b, ...)`` forward and back, as in training: running averages move.

        Networks may take ``(s, b, ...)``, each for several runs; see :func:`.group.sources_of`.
        """
        ...

    def wrong(self, images: Tensor | Drawn, labels: Tensor) -> Tensor:
        """Number of images every run gets wrong, ``(r,)``, of its own ``(r, b, ...)`` or of ``(b, ...)``."""
        ...


class Autograd:
    """Any network, by torch's own differentiation."""

    def __init__(self, stack: Stack) -> None:
        """Serve all runs of a stack."""
        self.stack = stack

    def train(self, images: Tensor | Drawn, labels: Tensor) -> Passed:
        """Pass a batch forward and back."""
        scores = self.stack.scores(pixels_of(images), training=True)
        losses = cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        trained = self.stack.trainable()
        # The sum over runs only stands for "each its own": no run's loss depends on another's weights.
        found = torch.autograd.grad(losses.sum(), list(trained.values()), allow_unused=True)
        gradients = {
            name: gradient
            for name, gradient in zip(trained, found, strict=True)
            if gradient is not None  # pyright: ignore[reportUnnecessaryComparison] - torch's stubs say never
        }
        return Passed(losses.detach(), _misses(scores, labels), gradients)

    @torch.no_grad()
    def wrong(self, images: Tensor | Drawn, labels: Tensor) -> Tensor:
        """Number of images every run gets wrong."""
        images = pixels_of(images)
        if labels.ndim == 1:
            count = len(next(iter(self.stack.parameters.values())))
            images, labels = images.expand(count, *images.shape), labels.expand(count, -1)
        return _misses(self.stack.scores(images, training=False), labels)


def _misses(scores: Tensor, labels: Tensor) -> Tensor:
    return (scores.argmax(dim=2) != labels).sum(dim=1)

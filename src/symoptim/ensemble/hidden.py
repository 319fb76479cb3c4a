"""A hidden layer of the paper's networks after its linear map: forward when it is made, and back.

Formulas are in :mod:`.pairwise`. Axis letters: r run, o filter or feature, b example.
"""

from importlib import import_module
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from symoptim.ensemble.batch_norm import Norm, center, require_several, to_responses_
from symoptim.ensemble.numerics import compiled_for


class Changes(NamedTuple):
    """Gradients of responses ``(r, o, b)``, and of gamma and beta ``(r, o)`` where there are any."""

    responses: Tensor
    norm: tuple[Tensor, Tensor] | None


class Hidden(Protocol):
    """A layer that has been passed."""

    pooled: Tensor

    def __init__(self, norm: Norm | None, responses: Tensor) -> None:
        """Pass responses ``(r, o, b)`` forward; in training, so running averages follow."""
        ...

    def back(self, half: Tensor) -> Changes:
        """From half the gradient of pooled features, which is used up."""
        ...


class Plain:
    """By torch, on any device."""

    def __init__(self, norm: Norm | None, responses: Tensor) -> None:
        """Pass responses forward."""
        self.norm = norm
        features = self.centered = self.scale = responses
        if norm:
            self.centered, self.scale = center(norm, responses)
            features = (self.centered * (norm.gamma * self.scale)).add_(norm.beta)
        even, odd = _pairs(features)
        self.winner = (even - odd).sign_()  # 1 or -1; 0 where both are equal
        self.pooled = pool(features)

    def back(self, half: Tensor) -> Changes:
        """From half the gradient of pooled features to that of responses."""
        half = half.mul_(self.pooled.sign())
        signed = half * self.winner
        change = torch.empty_like(self.centered)
        for place, operation in zip(_pairs(change), (torch.add, torch.sub), strict=True):
            operation(half, signed, out=place)
        if self.norm is None:
            return Changes(change, None)
        return Changes(change, to_responses_(self.norm, self.centered, self.scale, change))


class Compiled:
    """By numba, on a CPU: a pair is read and written while it is near."""

    def __init__(self, norm: Norm | None, responses: Tensor) -> None:
        """Pass responses forward."""
        self.norm, self.responses = norm, responses
        self.kernels = import_module("symoptim.ensemble.compiled")  # there, or this class had not been chosen
        runs, filters, count = responses.shape
        self.shift, self.scale = responses.new_zeros(runs, filters), responses.new_ones(runs, filters)
        self.gamma, self.beta = self.scale, self.shift
        if norm:
            require_several(count)
            self.gamma, self.beta, mean, variance = (part.squeeze(2) for part in norm[:4])
            self._call(
                "normalize", responses, mean, variance, self.shift, self.scale, norm.eps, norm.momentum
            )
            norm.batches.add_(1)
        self.pooled = responses.new_empty(runs, filters // 2, count)
        self._call("pool", responses, self.gamma, self.beta, self.shift, self.scale, self.pooled)

    def back(self, half: Tensor) -> Changes:
        """From half the gradient of pooled features to that of responses."""
        change = torch.empty_like(self.responses)
        self._call("share", self.responses, half, self.gamma, self.beta, self.shift, self.scale, change)
        if self.norm is None:
            return Changes(change, None)
        gamma, beta = torch.empty_like(self.scale), torch.empty_like(self.scale)
        self._call("to_responses", self.responses, change, self.gamma, self.shift, self.scale, gamma, beta)
        return Changes(change, (gamma, beta))

    def _call(self, kernel: str, *arguments: Tensor | float) -> None:
        getattr(self.kernels, kernel)(*(a.numpy() if isinstance(a, Tensor) else a for a in arguments))


def hidden_for(tensor: Tensor) -> type[Hidden]:
    """What is fastest where that tensor is."""
    return Compiled if compiled_for(tensor) else Plain


def pool(features: Tensor) -> Tensor:
    """ReLU and the larger of every pair, ``(r, o, b) -> (r, o / 2, b)``."""
    return torch.maximum(*_pairs(features)).clamp_(min=0)


def _pairs(features: Tensor) -> tuple[Tensor, Tensor]:
    """The first features of all pairs, and the second ones."""
    runs, count, examples = features.shape
    pairs = features.view(runs, count // 2, 2, examples)
    return pairs[:, :, 0], pairs[:, :, 1]

r"""A hidden layer of the paper's networks after its linear map: batch normalization and the max over pairs.

With h the responses, :math:`c = h - \bar h` and :math:`\sigma = (\overline{c^2} + \epsilon)^{-1/2}`, means
over the batch of every run on its own, features are :math:`a = \gamma \sigma c + \beta`, or h without
normalization, and

    forward     p_j = max(a_2j, a_2j+1, 0)
    backward    da goes to the larger of the pair, in halves to equal ones, if p_j > 0
                dbeta = sum_b da,  dgamma = sigma sum_b da c
                dh = gamma sigma (da - dbeta / b - c sigma dgamma / b)

Axis letters: r run, o filter or feature, b example.
"""

from importlib import import_module
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from symoptim.ensemble.fast import numba_layers_for
from symoptim.ensemble.fast.factored_gradient import lengths
from symoptim.ensemble.stacked_model import StackedModel
from symoptim.errors import OptionError


class StackedNorm(NamedTuple):
    """Batch normalization of a layer, all ``(r, o, 1)`` but the number of batches seen, ``(r,)``."""

    gamma: Tensor
    beta: Tensor
    mean: Tensor
    variance: Tensor
    batches: Tensor
    eps: float
    momentum: float


def norm_of(stack: StackedModel, name: str, norm: nn.Module, runs: slice) -> StackedNorm | None:
    """The batch normalization of that name, of some runs of a stack; None if it is another layer."""
    if not isinstance(norm, nn.BatchNorm1d):
        return None
    *columns, batches = (
        {**stack.parameters, **stack.buffers}[f"{name}.{part}"].detach()[runs]
        for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    )
    gamma, beta, mean, variance = (column.unsqueeze(2) for column in columns)
    return StackedNorm(gamma, beta, mean, variance, batches, norm.eps, cast("float", norm.momentum))


def require_variance(count: int) -> None:
    """Refuse a batch of one image, which has no variance."""
    if count == 1:
        raise OptionError(
            "batch normalization cannot learn from a batch of 1 image: choose another batch size"
        )


class HiddenGradients(NamedTuple):
    """Gradients of responses ``(r, o, b)``, and of gamma and beta ``(r, o)`` where there are any."""

    responses: Tensor
    norm: tuple[Tensor, Tensor] | None


class TorchHiddenPass:
    """A hidden layer passed by torch, on any device."""

    def __init__(self, norm: StackedNorm | None, responses: Tensor) -> None:
        """Pass responses ``(r, o, b)`` forward to ``pooled``; in training, so running averages follow."""
        self.norm = norm
        features = self.centered = self.scale = responses
        if norm:
            self._center(norm, responses)
            features = (self.centered * (norm.gamma * self.scale)).add_(norm.beta)
        even, odd = _pairs(features)
        self.winner = (even - odd).sign_()  # 1 or -1; 0 where both are equal
        self.pooled = pool(features)

    def _center(self, norm: StackedNorm, responses: Tensor) -> None:
        """Compute c and sigma; the running averages follow."""
        count = responses.shape[2]
        require_variance(count)
        mean = responses.mean(dim=2, keepdim=True)
        self.centered = responses - mean
        squares = lengths(self.centered).square_()
        norm.mean.lerp_(mean, norm.momentum)
        norm.variance.lerp_(squares / (count - 1), norm.momentum)
        norm.batches.add_(1)
        self.scale = squares.div_(count).add_(norm.eps).rsqrt_()

    def back(self, half: Tensor) -> HiddenGradients:
        """Gradients from half of that of the pooled features, which is overwritten."""
        half = half.mul_(self.pooled.sign())
        signed = half * self.winner
        change = torch.empty_like(self.centered)
        for features, operation in zip(_pairs(change), (torch.add, torch.sub), strict=True):
            operation(half, signed, out=features)
        if self.norm is None:
            return HiddenGradients(change, None)
        count = change.shape[2]
        beta = change.sum(dim=2, keepdim=True)
        gamma = (change * self.centered).sum(dim=2, keepdim=True).mul_(self.scale)
        change.sub_(self.centered.mul_(self.scale * gamma / count)).sub_(beta / count)
        change.mul_(self.norm.gamma * self.scale)
        return HiddenGradients(change, (gamma.squeeze(2), beta.squeeze(2)))


class NumbaHiddenPass:
    """A hidden layer passed by numba, on a CPU: a pair is read and written while it is in the cache."""

    def __init__(self, norm: StackedNorm | None, responses: Tensor) -> None:
        """Pass responses ``(r, o, b)`` forward to ``pooled``; in training, so running averages follow."""
        self.norm, self.responses = norm, responses
        # Whatever the number of threads is by now: numba is there, for this class was chosen.
        self.kernels = import_module("symoptim.ensemble.fast.numba_layers")
        runs, filters, count = responses.shape
        self.shift, self.scale = responses.new_zeros(runs, filters), responses.new_ones(runs, filters)
        self.gamma, self.beta = self.scale, self.shift
        if norm:
            require_variance(count)
            self.gamma, self.beta, mean, variance = (part.squeeze(2) for part in norm[:4])
            self._call(
                "normalize", responses, mean, variance, self.shift, self.scale, norm.eps, norm.momentum
            )
            norm.batches.add_(1)
        self.pooled = responses.new_empty(runs, filters // 2, count)
        self._call("pool", responses, self.gamma, self.beta, self.shift, self.scale, self.pooled)

    def back(self, half: Tensor) -> HiddenGradients:
        """Gradients from half of that of the pooled features."""
        change = torch.empty_like(self.responses)
        self._call("share", self.responses, half, self.gamma, self.beta, self.shift, self.scale, change)
        if self.norm is None:
            return HiddenGradients(change, None)
        gamma, beta = torch.empty_like(self.scale), torch.empty_like(self.scale)
        self._call("to_responses", self.responses, change, self.gamma, self.shift, self.scale, gamma, beta)
        return HiddenGradients(change, (gamma, beta))

    def _call(self, kernel: str, *arguments: Tensor | float) -> None:
        getattr(self.kernels, kernel)(*(a.numpy() if isinstance(a, Tensor) else a for a in arguments))


HiddenPass = TorchHiddenPass | NumbaHiddenPass


def hidden_pass_for(tensor: Tensor) -> type[HiddenPass]:
    """The faster class for tensors like that one."""
    return NumbaHiddenPass if numba_layers_for(tensor) else TorchHiddenPass


def evaluate_(norm: StackedNorm, responses: Tensor) -> None:
    """Normalize responses by the running averages, in place."""
    scale = norm.gamma * (norm.variance + norm.eps).rsqrt()
    responses.mul_(scale).add_(norm.beta - norm.mean * scale)


def pool(features: Tensor) -> Tensor:
    """ReLU and the larger of every pair, ``(r, o, b) -> (r, o / 2, b)``."""
    return torch.maximum(*_pairs(features)).clamp_(min=0)


def _pairs(features: Tensor) -> tuple[Tensor, Tensor]:
    """The first features of all pairs, and the second ones."""
    runs, count, examples = features.shape
    pairs = features.view(runs, count // 2, 2, examples)
    return pairs[:, :, 0], pairs[:, :, 1]

r"""Batch normalization of stacked networks, forward and back: of every run on its own.

With h the responses, :math:`c = h - \bar h` and :math:`\sigma = (\overline{c^2} + \epsilon)^{-1/2}`, means
over the batch, features are :math:`a = \gamma \sigma c + \beta`, and from their gradient da

    dbeta = sum_b da,  dgamma = sigma sum_b da c,  dh = gamma sigma (da - dbeta / b - c sigma dgamma / b)

Axis letters: r run, o feature, b example.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

from torch import Tensor, nn

from symoptim.ensemble.products import lengths
from symoptim.ensemble.stack import Stack
from symoptim.errors import OptionError


class Norm(NamedTuple):
    """Batch normalization of a layer, all ``(r, o, 1)`` but the number of batches seen, ``(r,)``."""

    gamma: Tensor
    beta: Tensor
    mean: Tensor
    variance: Tensor
    batches: Tensor
    eps: float
    momentum: float


def norm_of(stack: Stack, name: str, norm: nn.Module, runs: slice) -> Norm | None:
    """The normalization of that name, of some runs of a stack; None if it is none."""
    if not isinstance(norm, nn.BatchNorm1d):
        return None
    found: Sequence[Tensor] = [
        {**stack.parameters, **stack.buffers}[f"{name}.{part}"].detach()[runs]
        for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    ]
    *columns, batches = found
    gamma, beta, mean, variance = (column.unsqueeze(2) for column in columns)
    return Norm(gamma, beta, mean, variance, batches, norm.eps, cast("float", norm.momentum))


def require_several(count: int) -> None:
    """Refuse a batch that has no variance."""
    if count == 1:
        raise OptionError(
            "batch normalization cannot learn from a batch of 1 image: choose another batch size"
        )


def center(norm: Norm, responses: Tensor) -> tuple[Tensor, Tensor]:
    """Centered responses c, and the scale sigma; the running averages follow."""
    count = responses.shape[2]
    require_several(count)
    mean = responses.mean(dim=2, keepdim=True)
    centered = responses - mean
    squares = lengths(centered).square_()
    norm.mean.lerp_(mean, norm.momentum)
    norm.variance.lerp_(squares / (count - 1), norm.momentum)
    norm.batches.add_(1)
    return centered, squares.div_(count).add_(norm.eps).rsqrt_()


def to_responses_(norm: Norm, centered: Tensor, scale: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """Turn the gradient of features into that of responses, in place; c is used up.

    Args:
        norm: the normalization.
        centered: c, ``(r, o, b)``.
        scale: sigma, ``(r, o, 1)``.
        change: da, which becomes dh, ``(r, o, b)``.

    Returns:
        Gradients of gamma and beta, ``(r, o)``.
    """
    count = change.shape[2]
    beta = change.sum(dim=2, keepdim=True)
    gamma = (change * centered).sum(dim=2, keepdim=True).mul_(scale)
    change.sub_(centered.mul_(scale * gamma / count)).sub_(beta / count)
    change.mul_(norm.gamma * scale)
    return gamma.squeeze(2), beta.squeeze(2)


def evaluate_(norm: Norm, responses: Tensor) -> None:
    """Turn responses into features by the running averages, in place."""
    scale = norm.gamma * (norm.variance + norm.eps).rsqrt()
    responses.mul_(scale).add_(norm.beta - norm.mean * scale)

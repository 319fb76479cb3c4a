"""Arch1 and Arch2 of the paper: linear filters, ReLU, a max over neighboring pairs of features.

    Arch1   h = W x;            ReLU; max over pairs;  ...  softmax classifier theta
    Arch2   h = BN(W x);        ReLU; max over pairs;  ...  softmax classifier theta

No biases. The max halves the width, so with 64 filters W_1 is 64 x 784, every further W is 64 x 32 and
theta is 10 x 32 (arXiv:1511.01754, section 2). The loss is the cross-entropy *summed* over the batch.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from symoptim.errors import OptionError
from symoptim.geometry.rescaling import Arch1Scales, Arch2Scales, Scales, Weights, act, log_uniform
from symoptim.models.balance import start_balanced


class PairwiseMax(nn.Module):
    """Max over features (1, 2), (3, 4), ...: ``(*batch, n) -> (*batch, n / 2)``."""

    def forward(self, features: Tensor) -> Tensor:
        """Take the larger of every pair."""
        return features.reshape(*features.shape[:-1], -1, 2).amax(dim=-1)


class HiddenLayer(nn.Module):
    """Filters, then batch normalization or nothing, then ReLU and the pairwise max."""

    def __init__(self, inputs: int, width: int, norm: nn.Module) -> None:
        """Make ``width`` filters of ``inputs`` weights each."""
        super().__init__()
        self.filters = nn.Linear(inputs, width, bias=False)
        self.norm = norm
        self.pool = PairwiseMax()

    def forward(self, features: Tensor) -> Tensor:
        """``(*batch, inputs) -> (*batch, width / 2)``."""
        return self.pool(torch.relu(self.norm(self.filters(features))))


class PairwiseNetwork(nn.Module):
    """A stack of hidden layers and a softmax classifier; starts balanced, from normal filters."""

    def __init__(self, hidden: list[HiddenLayer], classes: int) -> None:
        """Put a classifier of that many classes on top of the hidden layers."""
        super().__init__()
        self.hidden = nn.ModuleList(hidden)
        self.classifier = nn.Linear(hidden[-1].filters.out_features // 2, classes, bias=False)
        for weight in (*self.weights().hidden, self.classifier.weight):
            nn.init.normal_(weight)
        start_balanced(self)

    def forward(self, inputs: Tensor) -> Tensor:
        """Images ``(batch, ...)``, flattened, to scores ``(batch, classes)``."""
        features = inputs.flatten(1)
        for layer in self.hidden:
            features = layer(features)
        return self.classifier(features)

    def weights(self) -> Weights:
        """The weights that rescalings act on."""
        return Weights(
            tuple(layer.get_submodule("filters").get_parameter("weight") for layer in self.hidden),
            self.classifier.weight,
        )

    def random_scales(self, *, seed: int, low: float = 1e-3, high: float = 1e3) -> Scales:
        """A random element of this network's group: scales log-uniform between ``low`` and ``high``."""
        first = self.weights().hidden[0]
        depth, width = len(self.hidden), first.shape[0]
        if isinstance(self.hidden[0].get_submodule("norm"), nn.BatchNorm1d):
            return Arch2Scales(log_uniform((depth, width), low=low, high=high, seed=seed).to(first))
        drawn = log_uniform((depth - 1 + width // 2,), low=low, high=high, seed=seed).to(first)
        return Arch1Scales(layers=drawn[: depth - 1], pairs=drawn[depth - 1 :])

    @torch.no_grad()
    def rescale_(self, scales: Scales) -> "PairwiseNetwork":
        """Act on the weights in place; the function of the network does not change."""
        moved = act(self.weights(), scales)
        for weight, new in zip(self.weights().hidden, moved.hidden, strict=True):
            weight.copy_(new)
        self.classifier.weight.copy_(moved.classifier)
        return self


def arch1(depth: int = 2, *, inputs: int = 784, width: int = 64, classes: int = 10) -> PairwiseNetwork:
    """Arch1: no normalization; its symmetries are eqs. (1)-(2).

    Args:
        depth: number of hidden layers.
        inputs: number of pixels.
        width: filters per hidden layer, an even number.
        classes: number of classes.

    Returns:
        The network, balanced.

    >>> [tuple(w.shape) for w in arch1(depth=3).weights().hidden]
    [(64, 784), (64, 32), (64, 32)]
    """
    return _network(nn.Identity, depth=depth, inputs=inputs, width=width, classes=classes)


def arch2(
    depth: int = 2, *, inputs: int = 784, width: int = 64, classes: int = 10, eps: float = 1e-5
) -> PairwiseNetwork:
    """Arch2: batch normalization after every hidden layer; its symmetries are eq. (3).

    They are exact only in the limit of a vanishing ``eps`` (1e-30 will do, in float64): a filter's scale
    matters once its features' variance comes near ``eps``.

    Args:
        depth: number of hidden layers.
        inputs: number of pixels.
        width: filters per hidden layer, an even number.
        classes: number of classes.
        eps: of the batch normalization, above 0.

    Returns:
        The network, balanced.
    """
    if not eps > 0:
        raise OptionError(f"eps must be above 0, got {eps}; torch's batch normalization needs one")
    return _network(
        lambda: nn.BatchNorm1d(width, eps=eps), depth=depth, inputs=inputs, width=width, classes=classes
    )


def _network(
    make_norm: Callable[[], nn.Module], *, depth: int, inputs: int, width: int, classes: int
) -> PairwiseNetwork:
    if depth < 1:
        raise OptionError(f"depth must be at least 1, got {depth}")
    if inputs < 1 or classes < 1:
        raise OptionError(f"inputs and classes must be at least 1, got {inputs} and {classes}")
    if width < 2 or width % 2:
        raise OptionError(
            f"width must be an even number >= 2, since features are pooled in pairs; got {width}"
        )
    sizes = [inputs] + [width // 2] * (depth - 1)
    return PairwiseNetwork([HiddenLayer(size, width, make_norm()) for size in sizes], classes)

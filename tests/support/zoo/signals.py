"""Convolutions other than for classifying images: over time, upwards, and of generators."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from tests.support.zoo.animal import Animal, Lambda, rand


def causal() -> nn.Module:
    """Dilated convolutions over time that only look back."""
    return Lambda(
        lambda self, x: self.second(pad(relu(self.first(pad(x, (1, 0)))), (2, 0))),
        first=nn.Conv1d(2, 4, 2),
        second=nn.Conv1d(4, 2, 2, dilation=2),
    )


def wavenet() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        x = self.first(x)
        before = pad(x, (2, 0))
        y = torch.tanh(self.filter(before)) * torch.sigmoid(self.gate(before))
        return self.head(relu(self.skip(y))) + self.last(relu(x + self.residual(y)))

    return Lambda(
        forward,
        first=nn.Conv1d(1, 2, 1),
        filter=nn.Conv1d(2, 3, 2, dilation=2),
        gate=nn.Conv1d(2, 3, 2, dilation=2),
        skip=nn.Conv1d(3, 2, 1),
        residual=nn.Conv1d(3, 2, 1),
        head=nn.Conv1d(2, 2, 1),
        last=nn.Conv1d(2, 2, 1),
    )


def super_resolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(3, 8, 3, padding=1),
        nn.PixelShuffle(2),
        nn.ReLU(),
        nn.Conv2d(2, 1, 1),
    )


def generator() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(3, 4, 2, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 2, 2, stride=2, groups=2),
        nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(2, 1, 3, padding=1, padding_mode="reflect"),
        nn.Tanh(),
    )


def maxout() -> nn.Module:
    return Lambda(
        lambda self, x: self.second(self.first(x).unflatten(1, (3, 2)).amax(dim=2)),
        first=nn.Conv2d(2, 6, 3),
        second=nn.Conv2d(3, 2, 2),
    )


SIGNALS: dict[str, Animal] = {
    "causal convolution": Animal(causal, rand(3, 2, 5)),
    "wavenet": Animal(wavenet, rand(3, 1, 5), slow=True),
    "super resolution": Animal(super_resolution, rand(2, 1, 4, 4), slow=True),
    "generator": Animal(generator, rand(3, 3, 1, 1), slow=True),
    "maxout convolution": Animal(maxout, rand(3, 2, 4, 4), slow=True),
}

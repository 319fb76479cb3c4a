"""Normalizations of every kind: of batches, layers, groups, images, and of weights."""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, instance_norm, layer_norm, normalize, relu

from tests.support.zoo.animal import Animal, Lambda, rand, together, tokens, weight


def standardized() -> nn.Module:
    """Weight standardization: every filter has mean 0 and deviation 1."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        filters = self.conv.weight
        axes = (1, 2, 3)
        centered = filters - filters.mean(dim=axes, keepdim=True)
        filters = centered / centered.square().mean(dim=axes, keepdim=True).sqrt()
        return self.head(relu(self.norm(conv2d(x, filters, self.conv.bias))))

    return Lambda(forward, conv=nn.Conv2d(2, 4, 3), norm=nn.GroupNorm(2, 4), head=nn.Conv2d(4, 2, 2))


def spectral() -> nn.Module:
    first = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4))
    return nn.Sequential(first, nn.ReLU(), nn.Linear(4, 2)).eval()


def adaptive_instance_norm() -> nn.Module:
    """A style sets gain and shift of normalized images."""

    def forward(self: nn.Module, x: Tensor, style: Tensor) -> Tensor:
        gain, shift = self.style(style)[:, :, None, None].chunk(2, dim=1)
        return self.head(relu(gain * instance_norm(self.conv(x), eps=1e-30) + shift))

    return Lambda(forward, conv=nn.Conv2d(2, 3, 3), style=nn.Linear(2, 6), head=nn.Conv2d(3, 2, 2))


def positions(length: int) -> nn.Module:
    def forward(self: nn.Module, places: Tensor) -> Tensor:
        x = self.words(places) + self.positions(torch.arange(places.shape[1]))
        return self.head(self.norm(x))

    return Lambda(
        forward,
        words=nn.Embedding(4, 3),
        positions=nn.Embedding(length, 3),
        norm=nn.LayerNorm(3),
        head=nn.Linear(3, 2),
    )


def layer_scale() -> nn.Module:
    return Lambda(
        lambda self, x: self.head(layer_norm(x + self.gain * self.down(relu(self.up(self.norm(x)))), [3])),
        norm=nn.LayerNorm(3),
        up=nn.Linear(3, 4),
        down=nn.Linear(4, 3),
        gain=weight(3),
        head=nn.Linear(3, 2),
    )


def conv_with(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.ReLU(), nn.Conv2d(4, 2, 2))


NORMALIZED: dict[str, Animal] = {
    "bias before batch norm": Animal(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)), rand(8, 3)
    ),
    "group norm": Animal(lambda: conv_with(nn.GroupNorm(2, 4)), rand(2, 2, 5, 5)),
    "group norm of single channels": Animal(
        lambda: conv_with(nn.GroupNorm(4, 4)), rand(2, 2, 5, 5), slow=True
    ),
    "instance norm": Animal(lambda: conv_with(nn.InstanceNorm2d(4, affine=True)), rand(2, 2, 5, 5)),
    "adaptive instance norm": Animal(
        adaptive_instance_norm, together(rand(2, 2, 5, 5), rand(2, 2)), slow=True
    ),
    "weight norm": Animal(
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 2)
        ),
        rand(8, 3),
    ),
    "weight standardization": Animal(standardized, rand(2, 2, 5, 5), slow=True),
    "spectral norm": Animal(spectral, rand(8, 3), slow=True),
    "cosine classifier": Animal(
        lambda: Lambda(
            lambda self, x: normalize(relu(self.a(x)), dim=-1) @ normalize(self.b.weight, dim=-1).T,
            a=nn.Linear(3, 4, bias=False),
            b=nn.Linear(4, 3, bias=False),
        ),
        rand(8, 3),
    ),
    "embedding, layer norm": Animal(
        lambda: nn.Sequential(nn.Embedding(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)), tokens(4, 6, 3)
    ),
    "batch norm without statistics": Animal(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)),
        rand(8, 3),
        slow=True,
    ),
    "embedding, positions, layer norm": Animal(lambda: positions(3), tokens(4, 6, 3)),
    "positions beyond the input": Animal(lambda: positions(5), tokens(4, 6, 3)),
    "layer scale": Animal(layer_scale, rand(6, 3), slow=True),
}

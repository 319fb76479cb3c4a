"""SegNet and SegNet-Basic: encoders that remember where each maximum was, decoders that put it back there.

    SegNetBasic   4 x [conv 7x7, BN, ReLU, pool], then 4 x [unpool, conv 7x7, BN], then conv 1x1
    SegNet        VGG16's 13 convolutions 3x3, each with BN and ReLU, 5 pools; its mirror image as decoder

Pooling rounds sizes up, as in Caffe: 360 x 480 becomes 180 x 240, 90 x 120, 45 x 60, 23 x 30, and unpooling
returns to exactly these sizes, so any input size will do. Convolutions before batch normalization have no
bias, which it would remove: their filters' scale is then exactly a symmetry.

Ref.: Badrinarayanan, Kendall, Cipolla, *SegNet*, arXiv:1511.00561; the definitions published with it.
"""

import itertools

import torch
from torch import Tensor, nn
from torch.nn.functional import local_response_norm, max_pool2d, max_unpool2d

from symoptim.errors import OptionError

VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Features and number of convolutions of VGG16's five stages."""


class ConvolutionBlock(nn.Sequential):
    """Convolution without bias, batch normalization, and ReLU if asked for."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, relu: bool) -> None:
        """Make a block that keeps the size of its input."""
        convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        super().__init__(convolution, nn.BatchNorm2d(outputs), nn.ReLU() if relu else nn.Identity())


class EncoderDecoder(nn.Module):
    """Stages that each end in a pool, and as many that each begin by undoing one."""

    def __init__(self, encoder: list[nn.Module], decoder: list[nn.Module], classifier: nn.Module) -> None:
        """Join stages; ``decoder[0]`` undoes the last pool."""
        super().__init__()
        self.encoder = nn.ModuleList(encoder)
        self.decoder = nn.ModuleList(decoder)
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        """Images ``(b, 3, h, w)`` to scores ``(b, classes, h, w)``."""
        features = images
        places: list[tuple[Tensor, torch.Size]] = []
        for stage in self.encoder:
            features = stage(features)
            size = features.shape[-2:]
            features, indices = max_pool2d(features, 2, ceil_mode=True, return_indices=True)
            places.append((indices, size))
        for stage in self.decoder:
            indices, size = places.pop()
            features = stage(max_unpool2d(features, indices, [2, 2], output_size=list(size)))
        return self.classifier(features)


class ContrastNormalization(nn.Module):
    """The first layer of SegNet-Basic: every pixel divided by how bright its colors are together."""

    def forward(self, images: Tensor) -> Tensor:
        """Local response normalization across colors, with the published constants."""
        return local_response_norm(images, 5, alpha=1e-4, beta=0.75, k=1.0)


class SegNetBasic(EncoderDecoder):
    """SegNet-Basic: four stages of 7x7 convolutions, no ReLU in the decoder.

    >>> SegNetBasic(classes=4, features=8)(torch.rand(1, 3, 45, 60)).shape
    torch.Size([1, 4, 45, 60])
    """

    def __init__(self, classes: int = 11, *, features: int = 64, stages: int = 4) -> None:
        """Make the network.

        Args:
            classes: number of classes.
            features: filters of every convolution but the last.
            stages: number of pools.

        Raises:
            OptionError: a number is below 1.
        """
        _require_positive(classes=classes, features=features, stages=stages)
        widths = [3] + [features] * (stages - 1)
        encoder: list[nn.Module] = [
            ConvolutionBlock(width, features, kernel=7, relu=True) for width in widths
        ]
        encoder[0] = nn.Sequential(ContrastNormalization(), encoder[0])
        decoder: list[nn.Module] = [
            ConvolutionBlock(features, features, kernel=7, relu=False) for _ in range(stages)
        ]
        super().__init__(encoder, decoder, nn.Conv2d(features, classes, 1))


class SegNet(EncoderDecoder):
    """SegNet in the shape of VGG16: 25 convolutions with batch normalization, and a classifier.

    >>> SegNet(classes=4, width=1 / 16)(torch.rand(1, 3, 45, 60)).shape
    torch.Size([1, 4, 45, 60])
    """

    def __init__(self, classes: int = 11, *, width: float = 1.0) -> None:
        """Make the network.

        Args:
            classes: number of classes.
            width: factor of all numbers of features.

        Raises:
            OptionError: a number is not above 0.
        """
        _require_positive(classes=classes, width=width)
        sizes = [(max(1, round(features * width)), count) for features, count in VGG16]
        inputs = [3] + [features for features, _ in sizes[:-1]]
        encoder: list[nn.Module] = []
        decoder: list[nn.Module] = []
        for (features, count), before in zip(sizes, inputs, strict=True):
            encoder.append(_stage([before] + [features] * count))
            # The mirror image: the last convolution of a stage returns to the features of the one before;
            # that of the first stage is the classifier.
            last = [before] if before != 3 else []
            decoder.insert(0, _stage([features] * count + last))
        super().__init__(encoder, decoder, nn.Conv2d(sizes[0][0], classes, 3, padding=1))


def _stage(widths: list[int]) -> nn.Sequential:
    """Convolution blocks from each width to the next."""
    pairs = itertools.pairwise(widths)
    return nn.Sequential(*(ConvolutionBlock(i, o, kernel=3, relu=True) for i, o in pairs))


def _require_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise OptionError(f"{name} must be above 0, got {number}")

"""Pixels as a network takes them in, and as picture files to be kept in the records."""

import io
from typing import Any

import torch
from torch import Tensor, nn


class Standardize(nn.Module):
    """Subtract the mean of every color and divide by its deviation, as measured on a set of images.

    >>> images = torch.tensor([0, 4], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(-1, 3, 1, 1)
    >>> Standardize(images)(images.float())[:, 0].flatten()
    tensor([-1.,  1.])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, images: Tensor) -> None:
        """Measure the colors of images ``(n, 3, h, w)``, unsigned bytes, wherever they are."""
        super().__init__()
        # Integer sums are the same on every device, and in every order.
        pixels = images.numel() // 3
        mean = _total(images, 1) / pixels
        variance = _total(images, 2) / pixels - mean.square()
        self.register_buffer("mean", mean.float()[:, None, None])
        self.register_buffer("deviation", variance.clamp(min=1.0).sqrt().float()[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Images ``(b, 3, h, w)``, floating point from 0 to 255."""
        return (images - self.mean) / self.deviation


def _total(images: Tensor, power: int) -> Tensor:
    """Sum over images and pixels of a power, by color; some images at a time, to be sparing of memory."""
    sums = [part.long().pow(power).sum(dim=(0, 2, 3)) for part in torch.split(images, 16)]
    return torch.stack(sums).sum(dim=0).cpu().double()


def jpeg(image: Tensor) -> bytes:
    """An image ``(3, h, w)``, unsigned bytes, for looking at: not every bit of it is kept."""
    return _encoded(image.permute(1, 2, 0), "JPEG", quality=90)


def label_png(labels: Tensor) -> bytes:
    """Labels ``(h, w)``, unsigned bytes, as a gray picture that has every one of them."""
    return _encoded(labels, "PNG", optimize=True)


def _encoded(pixels: Tensor, kind: str, **options: Any) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels.cpu().contiguous().numpy()).save(buffer, kind, **options)
    return buffer.getvalue()

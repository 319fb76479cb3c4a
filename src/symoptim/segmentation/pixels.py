"""From bytes to what a network takes in."""

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
        parts = [part.long() for part in torch.split(images, 16)]
        mean = _total(parts) / pixels
        variance = _total([part.square() for part in parts]) / pixels - mean.square()
        self.register_buffer("mean", mean.float()[:, None, None])
        self.register_buffer("deviation", variance.clamp(min=1.0).sqrt().float()[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Images ``(b, 3, h, w)``, floating point from 0 to 255."""
        return (images - self.mean) / self.deviation


def _total(parts: list[Tensor]) -> Tensor:
    """Sum over images and pixels, by color."""
    return torch.stack([part.sum(dim=(0, 2, 3)) for part in parts]).sum(dim=0).cpu().double()

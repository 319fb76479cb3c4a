"""Zooms, flips and crops of scenes, images and labels in step, on whatever device they are.

What happens to an image is decided by a seed, the epoch and the image's number alone, so that training can be
taken up at any epoch without having kept a generator. Axis letters: b image, h height, w width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from symoptim.errors import OptionError
from symoptim.paper.data.classes import VOID
from symoptim.support.seeds import derive_seed

CHANCES = 6
"""Uniform numbers an image needs: one for the flip, two for the crop's place, three for the zoom."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """What is done to images before they are learnt from; nothing by default.

    ``zoom`` resamples a window of the image to its full size: the window's height and width are between
    ``zoom[0]`` and ``zoom[1]`` of the image's, uniform in the logarithm, its place is random; what a window
    larger than the image shows around it has no class. ``flip`` mirrors half of the images, ``crop`` cuts
    a piece of (height, width) pixels out of each.
    """

    zoom: tuple[float, float] | None = None
    flip: bool = False
    crop: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.zoom is not None and not 0 < self.zoom[0] <= self.zoom[1]:
            raise OptionError(f"zoom must be two numbers, 0 < low <= high, got {self.zoom}")
        if self.crop is not None and min(self.crop) < 1:
            raise OptionError(f"crop must be at least 1 x 1 pixels, got {self.crop[0]} x {self.crop[1]}")


def augment(
    images: Tensor, labels: Tensor, augmentation: Augmentation, chances: Tensor
) -> tuple[Tensor, Tensor]:
    """Zoom, flip and crop a batch.

    Args:
        images: ``(b, 3, h, w)``; floating point, for a zoom.
        labels: ``(b, h, w)``.
        augmentation: what to do.
        chances: uniform numbers in [0, 1), ``(b, CHANCES)``.

    Returns:
        Images and labels, of the size of the crop if there is one.

    Raises:
        OptionError: the crop is larger than the images.

    >>> images, labels = torch.arange(3.0).expand(1, 3, 1, 3), torch.arange(3).expand(1, 1, 3)
    >>> augment(images, labels, Augmentation(flip=True), torch.zeros(1, CHANCES))[1]
    tensor([[[2, 1, 0]]])
    """
    flips, corners, zooms = torch.split(chances, [1, 2, 3], dim=1)
    if augmentation.zoom is not None:
        images, labels = _zoom(images, labels, augmentation.zoom, zooms)
    if augmentation.flip:
        mirrored = flips[:, 0] < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
        labels = torch.where(mirrored[:, None, None], labels.flip(-1), labels)
    if augmentation.crop is not None:
        images, labels = _crop(images, labels, augmentation.crop, corners)
    return images, labels


def _zoom(
    images: Tensor, labels: Tensor, bounds: tuple[float, float], chance: Tensor
) -> tuple[Tensor, Tensor]:
    low, high = bounds
    size = low * (high / low) ** chance[:, 0]
    # In grid_sample's coordinates the image is [-1, 1]: a window of this size fits in, or around, so.
    place = (2 * chance[:, 1:] - 1) * (1 - size)[:, None]
    zero = torch.zeros_like(size)
    windows = torch.stack([size, zero, place[:, 0], zero, size, place[:, 1]], dim=1).reshape(-1, 2, 3)
    grid = affine_grid(windows.to(images.dtype), list(images.shape), align_corners=False)
    seen = grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    # Outside is zero, and zero has to mean void; 0 to 255 are exact in any floating point type here.
    shifted = (labels.to(images.dtype) - VOID)[:, None]
    found = grid_sample(shifted, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return seen, (found[:, 0] + VOID).to(labels.dtype)


def _crop(images: Tensor, labels: Tensor, size: tuple[int, int], chance: Tensor) -> tuple[Tensor, Tensor]:
    rows = _window(labels.shape[1], size[0], chance[:, 0])
    columns = _window(labels.shape[2], size[1], chance[:, 1])
    item = torch.arange(len(labels), device=labels.device)[:, None, None]
    where = (item, rows[:, :, None], columns[:, None, :])
    return images.permute(0, 2, 3, 1)[where].permute(0, 3, 1, 2), labels[where]


def _window(size: int, kept: int, chance: Tensor) -> Tensor:
    """Indices ``(b, kept)`` of neighboring rows or columns, every start equally likely."""
    if kept > size:
        raise OptionError(f"a crop of {kept} pixels does not fit into {size}")
    start = (chance * (size - kept + 1)).long()
    return start[:, None] + torch.arange(kept, device=chance.device)


def chances(seed: int, epoch: int, items: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Uniform numbers ``(b, CHANCES)`` for every image of a batch, decided by seed, epoch and its number.

    >>> torch.equal(chances(1, 2, [5, 7])[1], chances(1, 2, [7])[0])
    True
    """
    rows: list[Tensor] = []
    for item in items:
        generator = torch.Generator().manual_seed(derive_seed(seed, "augmentation", epoch, item))
        rows.append(torch.rand(CHANCES, generator=generator))
    return torch.stack(rows).to(device)

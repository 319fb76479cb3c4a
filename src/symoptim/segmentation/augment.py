"""Flips and crops of scenes, images and labels in step, on whatever device they are.

What happens to an image is decided by a seed, the epoch and the image's number alone, so that training can be
taken up at any epoch without having kept a generator. Axis letters: b image, h height, w width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from symoptim.engine.numerics import derive_seed
from symoptim.errors import OptionError


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """Mirror half of the images, and cut a piece of ``crop`` (height, width) out of each; none by default."""

    flip: bool = False
    crop: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.crop is not None and min(self.crop) < 1:
            raise OptionError(f"crop must be at least 1 x 1 pixels, got {self.crop[0]} x {self.crop[1]}")


def augment(
    images: Tensor, labels: Tensor, augmentation: Augmentation, chances: Tensor
) -> tuple[Tensor, Tensor]:
    """Flip and crop a batch.

    Args:
        images: ``(b, 3, h, w)``.
        labels: ``(b, h, w)``.
        augmentation: what to do.
        chances: uniform numbers in [0, 1), ``(b, 3)``: one for the flip, two for the place of the crop.

    Returns:
        Images and labels, of the size of the crop if there is one.

    Raises:
        OptionError: the crop is larger than the images.

    >>> images, labels = torch.arange(3.0).expand(1, 3, 1, 3), torch.arange(3).expand(1, 1, 3)
    >>> augment(images, labels, Augmentation(flip=True), torch.zeros(1, 3))[1]
    tensor([[[2, 1, 0]]])
    """
    if augmentation.flip:
        mirrored = chances[:, 0] < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
        labels = torch.where(mirrored[:, None, None], labels.flip(-1), labels)
    if augmentation.crop is None:
        return images, labels
    rows = _places(labels.shape[1], augmentation.crop[0], chances[:, 1])
    columns = _places(labels.shape[2], augmentation.crop[1], chances[:, 2])
    item = torch.arange(len(labels), device=labels.device)[:, None, None]
    where = (item, rows[:, :, None], columns[:, None, :])
    return images.permute(0, 2, 3, 1)[where].permute(0, 3, 1, 2), labels[where]


def _places(size: int, kept: int, chance: Tensor) -> Tensor:
    """Indices ``(b, kept)`` of neighboring rows or columns, every start equally likely."""
    if kept > size:
        raise OptionError(f"a crop of {kept} pixels does not fit into {size}")
    start = (chance * (size - kept + 1)).long()
    return start[:, None] + torch.arange(kept, device=chance.device)


def chances(seed: int, epoch: int, items: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Three uniform numbers for every image of a batch, decided by seed, epoch and the image's number.

    >>> torch.equal(chances(1, 2, [5, 7])[1], chances(1, 2, [7])[0])
    True
    """
    rows: list[Tensor] = []
    for item in items:
        generator = torch.Generator().manual_seed(derive_seed(seed, "augmentation", epoch, item))
        rows.append(torch.rand(3, generator=generator))
    return torch.stack(rows).to(device)

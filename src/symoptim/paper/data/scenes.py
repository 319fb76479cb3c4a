"""What every data set for segmentation is to the rest of the package."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate


class Scenes(NamedTuple):
    """Images ``(n, 3, h, w)`` and labels ``(n, h, w)``, both unsigned bytes, and a name for every image."""

    images: Tensor
    labels: Tensor
    names: tuple[str, ...]

    def to(self, device: torch.device | str) -> "Scenes":
        """The same scenes there."""
        return Scenes(self.images.to(device), self.labels.to(device), self.names)

    def resized(self, height: int, width: int) -> "Scenes":
        """The same scenes in another size: colors are averaged, labels are those of the nearest pixels.

        >>> labels = torch.arange(16, dtype=torch.uint8).reshape(1, 4, 4)
        >>> Scenes(labels[:, None].expand(-1, 3, -1, -1), labels, ("a",)).resized(2, 2).images[0, 0]
        tensor([[ 2,  4],
                [10, 12]], dtype=torch.uint8)
        """
        if self.labels.shape[1:] == (height, width):
            return self
        # Some images at a time: as floating point all of them would take a lot of memory.
        images = [
            interpolate(part.float(), (height, width), mode="area").round().to(torch.uint8)
            for part in torch.split(self.images, 16)
        ]
        rows, columns = (
            ((torch.arange(size) + 0.5) * old / size).long()
            for size, old in zip((height, width), self.labels.shape[1:], strict=True)
        )
        return Scenes(torch.cat(images), self.labels[:, rows][:, :, columns], self.names)


class SceneSplit(NamedTuple):
    """Scenes to learn from, to choose by, and to report on."""

    train: Scenes
    validation: Scenes
    test: Scenes

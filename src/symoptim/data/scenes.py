"""What every data set for segmentation is to the rest of the package."""

from typing import NamedTuple

from torch import Tensor


class Scenes(NamedTuple):
    """Images ``(n, 3, h, w)`` and labels ``(n, h, w)``, both unsigned bytes, and a name for every image."""

    images: Tensor
    labels: Tensor
    names: tuple[str, ...]


class SceneSplit(NamedTuple):
    """Scenes to learn from, to choose by, and to report on."""

    train: Scenes
    validation: Scenes
    test: Scenes

"""The classes of CamVid as SegNet's authors use it: eleven, and pixels that belong to none."""

from typing import NamedTuple


class SceneClass(NamedTuple):
    """Name, color in pictures, and the weight its authors gave it in the loss."""

    name: str
    color: tuple[int, int, int]
    published_weight: float


CLASSES: tuple[SceneClass, ...] = (
    SceneClass("sky", (128, 128, 128), 0.2595),
    SceneClass("building", (128, 0, 0), 0.1826),
    SceneClass("pole", (192, 192, 128), 4.5640),
    SceneClass("road", (128, 64, 128), 0.1417),
    SceneClass("pavement", (60, 40, 222), 0.9051),
    SceneClass("tree", (128, 128, 0), 0.3826),
    SceneClass("sign", (192, 128, 128), 9.6446),
    SceneClass("fence", (64, 64, 128), 1.8418),
    SceneClass("car", (64, 0, 128), 0.6823),
    SceneClass("pedestrian", (64, 64, 0), 6.2478),
    SceneClass("bicyclist", (0, 128, 192), 7.3614),
)
"""In the order of their labels; colors and weights as published with SegNet (arXiv:1511.00561)."""

VOID = len(CLASSES)
"""Label of pixels that belong to no class."""

"""Road scenes drawn by a seeded generator: something to segment where CamVid cannot be had.

A scene is drawn back to front, as a painter would: sky, buildings, trees, pavements, road, poles with signs,
cars, pedestrians, bicyclists. Labels are CamVid's. Every surface has a color, a texture and light of its
own, and they vary from scene to scene, so that neither color nor place alone gives a class away.
"""

import math

import torch
from torch import Tensor

from symoptim.errors import OptionError
from symoptim.paper.data.classes import VOID
from symoptim.paper.data.scenes import Scenes, SceneSplit

SKY, BUILDING, POLE, ROAD, PAVEMENT, TREE, SIGN, FENCE, CAR, PEDESTRIAN, BICYCLIST = range(VOID)
COLORS: dict[int, tuple[float, float, float]] = {
    SKY: (0.65, 0.75, 0.9),
    BUILDING: (0.55, 0.4, 0.35),
    POLE: (0.45, 0.45, 0.45),
    ROAD: (0.35, 0.35, 0.37),
    PAVEMENT: (0.6, 0.57, 0.55),
    TREE: (0.25, 0.4, 0.2),
    SIGN: (0.8, 0.2, 0.2),
    FENCE: (0.4, 0.3, 0.2),
    CAR: (0.2, 0.25, 0.55),
    PEDESTRIAN: (0.7, 0.5, 0.3),
    BICYCLIST: (0.3, 0.55, 0.55),
}
COUNTS = (367, 101, 233)
"""Scenes for training, validation and testing: as many as CamVid has images."""


class Painter:
    """A canvas and a source of chance; coordinates are shares of height and width, from the top left."""

    def __init__(self, height: int, width: int, generator: torch.Generator) -> None:
        """Begin with an empty canvas."""
        self.generator = generator
        self.y = ((torch.arange(height) + 0.5) / height)[:, None]
        self.x = ((torch.arange(width) + 0.5) / width)[None, :]
        self.image = torch.zeros(3, height, width)
        self.labels = torch.full((height, width), VOID, dtype=torch.uint8)

    def draw(self, low: float, high: float) -> float:
        """A number between two others."""
        return low + (high - low) * float(torch.rand((), generator=self.generator))

    def paint(self, where: Tensor, kind: int) -> None:
        """Put a surface of that class over whatever is there."""
        color = torch.tensor(COLORS[kind]) * self.draw(0.7, 1.3)
        color += 0.12 * (torch.rand(3, generator=self.generator) - 0.5)
        texture = 0.08 * torch.randn(self.labels.shape, generator=self.generator)
        light = 1.1 - 0.25 * self.y
        self.image = torch.where(where, color[:, None, None] * light + texture, self.image)
        self.labels = torch.where(where, torch.tensor(kind, dtype=torch.uint8), self.labels)

    def box(self, top: float, bottom: float, left: float, right: float) -> Tensor:
        """Pixels of a rectangle."""
        return (self.y >= top) & (self.y < bottom) & (self.x >= left) & (self.x < right)

    def ellipse(self, y: float, x: float, height: float, width: float) -> Tensor:
        """Pixels of an ellipse of these half axes."""
        return ((self.y - y) / height) ** 2 + ((self.x - x) / width) ** 2 < 1

    def strip(self, horizon: float, center: float, narrow: float, wide: float) -> Tensor:
        """Pixels of a strip on the ground that comes from the horizon and grows wider."""
        depth = (self.y - horizon) / (1 - horizon)
        half = narrow + (wide - narrow) * depth
        middle = center + (0.5 - center) * depth
        return (depth > 0) & ((self.x - middle).abs() < half)


def paint_scene(painter: Painter) -> None:
    """Draw one scene."""
    horizon, center = painter.draw(0.35, 0.5), painter.draw(0.4, 0.6)
    painter.paint(painter.box(0, 1, 0, 1), SKY)
    left = -0.05
    while left < 1:
        right = left + painter.draw(0.1, 0.3)
        painter.paint(painter.box(painter.draw(0.05, 0.3), 1, left, right), BUILDING)
        left = right + max(0.0, painter.draw(-0.1, 0.1))
    for _ in range(3):
        x, size = painter.draw(0, 1), painter.draw(0.06, 0.14)
        painter.paint(painter.ellipse(horizon - size, x, 1.3 * size, size), TREE)
    painter.paint(painter.box(horizon, 1, 0, 1), PAVEMENT)
    if painter.draw(0, 1) < 0.5:
        side = painter.draw(0, 0.5)
        painter.paint(painter.box(horizon - 0.03, horizon + 0.05, side, side + 0.4), FENCE)
    painter.paint(painter.strip(horizon, center, 0.03, painter.draw(0.5, 0.8)), ROAD)
    for _ in range(3):
        _paint_pole(painter, horizon)
    for _ in range(3):
        _paint_car(painter, horizon, center)
    for _ in range(3):
        _paint_pedestrian(painter, horizon)
    for _ in range(2):
        _paint_bicyclist(painter, horizon)


def _paint_pole(painter: Painter, horizon: float) -> None:
    x, foot = painter.draw(0.02, 0.98), horizon + painter.draw(0.02, 0.2)
    top = foot - painter.draw(0.3, 0.5)
    painter.paint(painter.box(top, foot, x, x + 0.018), POLE)
    if painter.draw(0, 1) < 0.7:
        painter.paint(painter.ellipse(top, x + 0.009, 0.05, 0.035), SIGN)


def _paint_car(painter: Painter, horizon: float, center: float) -> None:
    depth = painter.draw(0.1, 0.7)
    foot = horizon + (1 - horizon) * depth
    height, width = 0.06 + 0.22 * depth, 0.06 + 0.26 * depth
    left = center + (0.5 - center) * depth + painter.draw(-0.35, 0.35) * depth - width / 2
    body = painter.box(foot - 0.6 * height, foot, left, left + width)
    cabin = painter.box(foot - height, foot, left + 0.2 * width, left + 0.8 * width)
    painter.paint(body | cabin, CAR)


def _paint_pedestrian(painter: Painter, horizon: float) -> None:
    foot, x = horizon + painter.draw(0.08, 0.3), painter.draw(0.02, 0.98)
    height = 0.5 * (foot - horizon) + 0.1
    body = painter.box(foot - 0.8 * height, foot, x - 0.14 * height, x + 0.14 * height)
    head = painter.ellipse(foot - 0.88 * height, x, 0.12 * height, 0.12 * height)
    painter.paint(body | head, PEDESTRIAN)


def _paint_bicyclist(painter: Painter, horizon: float) -> None:
    foot, x = horizon + painter.draw(0.1, 0.35), painter.draw(0.1, 0.9)
    height = 0.5 * (foot - horizon) + 0.1
    hub = foot - 0.2 * height
    wheels = painter.ellipse(hub, x - 0.22 * height, 0.2 * height, 0.17 * height) | painter.ellipse(
        hub, x + 0.22 * height, 0.2 * height, 0.17 * height
    )
    rider = painter.box(foot - 0.85 * height, hub, x - 0.12 * height, x + 0.12 * height)
    painter.paint(wheels | rider, BICYCLIST)


def draw_roads(count: int, *, height: int = 90, width: int = 120, seed: int = 0) -> Scenes:
    """Draw scenes; the same seed gives the same ones.

    >>> draw_roads(2, height=30, width=40).images.shape
    torch.Size([2, 3, 30, 40])
    """
    if min(count, height, width) < 1:
        raise OptionError(f"count, height and width must be at least 1, got {count}, {height} and {width}")
    generator = torch.Generator().manual_seed(seed)
    painters = [Painter(height, width, generator) for _ in range(count)]
    for painter in painters:
        paint_scene(painter)
    images = torch.stack([(255 * painter.image.clamp(0, 1)).to(torch.uint8) for painter in painters])
    digits = math.ceil(math.log10(count + 1))
    names = tuple(f"road_{seed}_{k:0{digits}}" for k in range(count))
    return Scenes(images, torch.stack([painter.labels for painter in painters]), names)


def load_roads(*, height: int = 90, width: int = 120, seed: int = 0) -> SceneSplit:
    """As many scenes as CamVid has images, for training, validation and testing; none of them twice."""
    parts = [draw_roads(n, height=height, width=width, seed=3 * seed + k) for k, n in enumerate(COUNTS)]
    return SceneSplit(*parts)

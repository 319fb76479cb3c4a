"""Data sets by name, and the digest that tells whether two runs saw the same images."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from symoptim.ensemble.images import Split
from symoptim.paper.choices import DataName, SceneDataName
from symoptim.paper.data.camvid import load_camvid
from symoptim.paper.data.digits import load_digits
from symoptim.paper.data.mnist import load_fashion_mnist, load_mnist
from symoptim.paper.data.roads import load_roads
from symoptim.paper.data.scenes import SceneSplit
from symoptim.paper.data.sources import ProgressBar


def load(name: DataName, directory: Path | None = None, *, progress: ProgressBar | None = None) -> Split:
    """Load a data set; ``directory`` is as in :func:`symoptim.paper.data.mnist.load_mnist`."""
    match name:
        case "mnist":
            return load_mnist(directory, progress=progress)
        case "fashion-mnist":
            return load_fashion_mnist(directory)
        case "digits":
            return load_digits()


def load_scenes(name: SceneDataName, directory: Path | None, size: tuple[int, int]) -> SceneSplit:
    """Load scenes in a size: height and width."""
    height, width = size
    match name:
        case "camvid":
            return SceneSplit(*(scenes.resized(height, width) for scenes in load_camvid(directory)))
        case "roads":
            return load_roads(height=height, width=width)


def digest_of(tensors: Iterable[Tensor]) -> str:
    """Short digest of all images and labels."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]

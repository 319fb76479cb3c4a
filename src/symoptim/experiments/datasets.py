"""Data sets by name, and the digest that tells whether two runs saw the same images."""

import hashlib
from pathlib import Path

from symoptim.data.digits import load_digits
from symoptim.data.mnist import load_fashion_mnist, load_mnist
from symoptim.data.sources import ProgressBar
from symoptim.data.split import Split
from symoptim.experiments.names import DataName


def load(name: DataName, directory: Path | None = None, *, progress: ProgressBar | None = None) -> Split:
    """Load a data set.

    Args:
        name: which one.
        directory: where its files are; see :func:`symoptim.data.mnist.load_mnist`.
        progress: is told how far a download is.

    Returns:
        Images and labels.
    """
    match name:
        case "mnist":
            return load_mnist(directory, progress=progress)
        case "fashion-mnist":
            return load_fashion_mnist(directory)
        case "digits":
            return load_digits()


def digest_of(data: Split) -> str:
    """Short digest of all images and labels."""
    digest = hashlib.sha256()
    for tensor in data:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]

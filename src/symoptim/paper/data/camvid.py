"""CamVid as it comes with SegNet's tutorial: folders of images and of labels, or a zip of them.

    train/       0001TP_006690.png ...     trainannot/   0001TP_006690.png ...
    val/                                   valannot/
    test/                                  testannot/

Images may be PNG or WebP, labels are palette or gray PNGs whose *indices* are the classes. The data are free
for research only: they are never shipped with this package, and never downloaded.
"""

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from symoptim.errors import DataError
from symoptim.paper.data.classes import VOID
from symoptim.paper.data.files import VARIABLE, given_directory
from symoptim.paper.data.scenes import Scenes, SceneSplit

SPLITS = {"train": "train", "validation": "val", "test": "test"}
ENDINGS = (".png", ".webp")

Folder = Path | zipfile.Path


def load_camvid(place: Path | None = None) -> SceneSplit:
    """Load CamVid: 367 images for training, 101 for validation, 233 for testing, of 480 x 360 pixels.

    Args:
        place: a folder or a zip file with the six folders, or a folder that has either in it; by default
            what the environment variable ``SYMOPTIM_DATA`` names.

    Returns:
        Images and labels.

    Raises:
        DataError: nothing is there, an image has no labels, or a file is damaged or of another size.
    """
    given = given_directory(place)
    if given is None:
        raise DataError(f"CamVid is read from a folder or a zip file only: give one, or set {VARIABLE}")
    if not given.exists():
        raise DataError(f"there is no {given}: give a folder that has CamVid in it, or a zip file of it")
    root = next(_roots(given), None)
    if root is None:
        raise DataError(
            f"{given} has no CamVid: no folders train and trainannot, in it or in a zip file there"
        )
    return SceneSplit(*(_load(root, folder) for folder in SPLITS.values()))


def has_camvid(place: Path | None = None) -> bool:
    """Whether :func:`load_camvid` would find CamVid's folders there; what is in them is not looked at."""
    given = given_directory(place)
    return given is not None and next(_roots(given), None) is not None


def _roots(place: Path) -> Iterator[Folder]:
    """Folders below ``place``, in zip files too, that have CamVid's folders; at most two levels down."""
    if place.is_file() and zipfile.is_zipfile(place):
        yield from _below(zipfile.Path(place), 1)
    elif place.is_dir():
        yield from _below(place, 2)
        for archive in sorted([*place.glob("*.zip"), *place.glob("*/*.zip")]):
            if zipfile.is_zipfile(archive):
                yield from _below(zipfile.Path(archive), 1)
            elif "camvid" in archive.name.lower():
                raise DataError(f"{archive} is damaged: it is no zip file; get it anew, or remove it")


def _below(folder: Folder, levels: int) -> Iterator[Folder]:
    if (folder / "train").is_dir() and (folder / "trainannot").is_dir():
        yield folder
    elif levels:
        for child in folder.iterdir():
            if child.is_dir():
                yield from _below(child, levels - 1)


def _load(root: Folder, split: str) -> Scenes:
    """All images of a folder with their labels, by name."""
    images, labels = _files(root / split), _files(root / f"{split}annot")
    lonely = sorted(set(images) ^ set(labels))
    if lonely:
        there, lacking = ("an image", "labels") if lonely[0] in images else ("labels", "image")
        raise DataError(f"{root / split}: {lonely[0]} has {there} but no {lacking}")
    if not images:
        raise DataError(f"{root / split} has no images")
    names = sorted(images)
    size = _image(images[names[0]]).shape[1:]
    return Scenes(
        torch.stack([_of_size(_image(images[name]), size, images[name]) for name in names]),
        torch.stack([_of_size(_labels(labels[name]), size, labels[name]) for name in names]),
        tuple(names),
    )


def _files(folder: Folder) -> dict[str, Folder]:
    """Files of a folder by name, without ending."""
    if not folder.is_dir():
        raise DataError(f"{folder} is missing")
    files = [file for file in folder.iterdir() if file.name.lower().endswith(ENDINGS)]
    return {file.name.rpartition(".")[0]: file for file in files}


def _open(file: Folder) -> Any:
    """A decoded picture; the decoder is an extra."""
    from PIL import Image

    try:
        picture = Image.open(io.BytesIO(file.read_bytes()))
        picture.load()
    except (OSError, SyntaxError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{file} cannot be decoded: {error}") from error
    return picture


def _tensor(picture: Any) -> Tensor:
    import numpy as np

    return torch.tensor(np.asarray(picture), dtype=torch.uint8)


def _image(file: Folder) -> Tensor:
    return _tensor(_open(file).convert("RGB")).permute(2, 0, 1)


def _labels(file: Folder) -> Tensor:
    """Indices of a label picture, as they are: a conversion would turn them into colors."""
    picture = _open(file)
    if picture.mode not in ("P", "L"):
        raise DataError(f"{file} has mode {picture.mode}; labels are palette (P) or gray (L) pictures")
    labels = _tensor(picture)
    if int(labels.max()) > VOID:
        raise DataError(f"{file} has label {int(labels.max())}; labels are 0 to {VOID}")
    return labels


def _of_size(tensor: Tensor, size: torch.Size, file: Folder) -> Tensor:
    if tensor.shape[-2:] != size:
        height, width = tensor.shape[-2:]
        raise DataError(f"{file} is {width} x {height} pixels, others are {size[1]} x {size[0]}")
    return tensor

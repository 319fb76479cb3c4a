"""A CamVid of six tiny images, as folders and as a zip file."""

import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

COUNTS = {"train": 3, "val": 2, "test": 1}


def write(folder: Path, *, ending: str = ".png", mode: str = "P", times: int = 1) -> Path:
    """A tiny CamVid, or some times that; the label of pixel (y, x) of image k is (y + x + k) % 12."""
    for split, count in COUNTS.items():
        for name in (split, f"{split}annot"):
            (folder / name).mkdir(parents=True)
        for k in range(count * times):
            pixels = np.full((6, 8, 3), 10 * k % 256, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / split / f"frame_{k}{ending}", lossless=True)
            y, x = np.mgrid[:6, :8]
            labels = Image.fromarray(((y + x + k) % 12).astype(np.uint8))
            if mode == "P":
                labels = labels.convert("L")
                labels.putpalette([value for color in range(256) for value in (color, 0, 255 - color)])
            labels.save(folder / f"{split}annot" / f"frame_{k}.png")
    return folder


def pack(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as packed:
        for file in sorted(folder.rglob("*.*")):
            packed.write(file, Path("CamVid") / file.relative_to(folder))
    return archive

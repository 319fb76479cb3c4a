import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from symoptim.data.camvid import load_camvid
from symoptim.errors import DataError

COUNTS = {"train": 3, "val": 2, "test": 1}


def write(folder: Path, *, ending: str = ".png", mode: str = "P") -> Path:
    """A tiny CamVid; the label of pixel (y, x) of image k is (y + x + k) % 12."""
    for split, count in COUNTS.items():
        for name in (split, f"{split}annot"):
            (folder / name).mkdir(parents=True)
        for k in range(count):
            pixels = np.full((6, 8, 3), 10 * k, dtype=np.uint8)
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


@pytest.mark.parametrize("ending", [".png", ".webp"])
@pytest.mark.parametrize("mode", ["P", "L"])
def test_images_and_label_indices_are_read(tmp_path: Path, ending: str, mode: str) -> None:
    split = load_camvid(write(tmp_path, ending=ending, mode=mode))
    assert [tuple(part.images.shape) for part in split] == [(n, 3, 6, 8) for n in COUNTS.values()]
    assert split.train.names == ("frame_0", "frame_1", "frame_2")
    y, x = torch.meshgrid(torch.arange(6), torch.arange(8), indexing="ij")
    for k in range(3):
        assert (split.train.images[k] == 10 * k).all()
        assert torch.equal(split.train.labels[k].long(), (y + x + k) % 12)


def test_a_zip_a_folder_above_and_a_folder_with_a_zip_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "somewhere" / "CamVid")
    expected = load_camvid(folder)
    (tmp_path / "data" / "camvid").mkdir(parents=True)
    archive = pack(folder, tmp_path / "data" / "camvid" / "camvid.zip")
    monkeypatch.setenv("SYMOPTIM_DATA", str(tmp_path / "data"))
    for found in (load_camvid(archive), load_camvid(tmp_path / "somewhere"), load_camvid()):
        for part, same in zip(found, expected, strict=True):
            assert torch.equal(part.images, same.images)
            assert torch.equal(part.labels, same.labels)
            assert part.names == same.names


def save(path: Path, values: np.ndarray) -> None:
    Image.fromarray(values.astype(np.uint8)).save(path)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no labels": (
        lambda f: (f / "valannot" / "frame_1.png").unlink(),
        r"val: frame_1 has an image but no labels",
    ),
    "no image": (
        lambda f: (f / "test" / "frame_0.png").unlink(),
        r"test: frame_0 has labels but no image",
    ),
    "cut off": (
        lambda f: (f / "train" / "frame_1.png").write_bytes((f / "train" / "frame_1.png").read_bytes()[:40]),
        r"frame_1.png cannot be decoded",
    ),
    "another size": (
        lambda f: save(f / "train" / "frame_2.png", np.zeros((5, 8, 3))),
        r"frame_2.png is 8 x 5 pixels, others are 8 x 6",
    ),
    "labels of another size": (
        lambda f: save(f / "trainannot" / "frame_0.png", np.zeros((6, 7))),
        r"frame_0.png is 7 x 6 pixels, others are 8 x 6",
    ),
    "an unknown label": (
        lambda f: save(f / "testannot" / "frame_0.png", np.full((6, 8), 12)),
        r"frame_0.png has label 12; labels are 0 to 11",
    ),
    "labels in color": (
        lambda f: save(f / "testannot" / "frame_0.png", np.zeros((6, 8, 3))),
        r"frame_0.png has mode RGB; labels are palette \(P\) or gray \(L\)",
    ),
    "a folder missing": (
        lambda f: (
            [(f / "valannot" / f"frame_{k}.png").unlink() for k in range(2)] + [(f / "valannot").rmdir()]
        ),
        r"valannot is missing",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_bad_data_are_named(tmp_path: Path, damage: str) -> None:
    spoil, message = DAMAGES[damage]
    spoil(write(tmp_path))
    with pytest.raises(DataError, match=message):
        load_camvid(tmp_path)


def test_without_a_place_or_with_nothing_there_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SYMOPTIM_DATA", raising=False)
    with pytest.raises(DataError, match="give one, or set SYMOPTIM_DATA"):
        load_camvid()
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError, match="has no CamVid"):
            load_camvid(place)

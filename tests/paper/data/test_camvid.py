from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from symoptim.errors import DataError
from symoptim.paper.data.camvid import has_camvid, load_camvid
from tests.support.tiny_camvid import COUNTS, pack, write


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
    with pytest.raises(DataError, match="has no CamVid: no folders train and trainannot"):
        load_camvid(tmp_path)
    with pytest.raises(DataError, match=r"there is no .*nowhere: give a folder"):
        load_camvid(tmp_path / "nowhere")


def test_camvid_is_found_wherever_it_would_be_loaded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "somewhere" / "CamVid")
    archive = pack(folder, tmp_path / "camvid.zip")
    for place in (folder, tmp_path / "somewhere", archive, tmp_path):
        assert has_camvid(place)
    monkeypatch.setenv("SYMOPTIM_DATA", str(folder))
    assert has_camvid()


def test_camvid_is_not_found_where_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SYMOPTIM_DATA", raising=False)
    (tmp_path / "train").mkdir()  # but no labels
    (tmp_path / "notes.txt").write_text("CamVid")
    for place in (None, tmp_path, tmp_path / "nowhere", tmp_path / "notes.txt"):
        assert not has_camvid(place)


def test_to_be_found_is_not_to_be_whole(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "train" / "frame_0.png").unlink()
    assert has_camvid(folder)
    with pytest.raises(DataError):
        load_camvid(folder)


def test_a_damaged_zip_is_named_and_others_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "other.zip").write_bytes(b"no zip")
    assert not has_camvid(tmp_path)
    (tmp_path / "CamVid.zip").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"CamVid.zip is damaged: it is no zip file"):
        has_camvid(tmp_path)


def test_a_damaged_picture_in_a_zip_is_named(tmp_path: Path) -> None:
    archive = pack(write(tmp_path / "folder"), tmp_path / "camvid.zip")
    content = bytearray(archive.read_bytes())
    place = content.index(b"train/frame_1.png") + 60
    content[place : place + 4] = b"oops"
    archive.write_bytes(content)
    with pytest.raises(DataError, match=r"frame_1.png cannot be decoded"):
        load_camvid(archive)

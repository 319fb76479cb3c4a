from pathlib import Path

import pytest
import torch

from symoptim.errors import DataError
from symoptim.paper.data.camvid import load_camvid
from symoptim.paper.data.datasets import digest_of, load, load_scenes
from symoptim.paper.data.roads import draw_roads
from symoptim.paper.data.scenes import SceneSplit
from tests.support.small import small_data
from tests.support.tiny_camvid import COUNTS, write


def test_digits_need_no_files() -> None:
    assert tuple(load("digits").train_images.shape) == (1500, 64)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_files_are_looked_for_in_the_directory(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{tmp_path} lacks train-images-idx3-ubyte"):
        load(name, tmp_path)


def test_the_digest_tells_images_apart() -> None:
    data = small_data()
    other = data._replace(test_labels=data.test_labels.flip(0))
    assert digest_of(data) == digest_of(small_data()) != digest_of(other)
    assert digest_of(data) != digest_of(data._replace(train_images=torch.zeros_like(data.train_images)))


def test_camvid_comes_in_the_size_that_is_asked_for(tmp_path: Path) -> None:
    whole = load_camvid(write(tmp_path))
    found = load_scenes("camvid", tmp_path, (3, 4))
    assert [tuple(part.images.shape) for part in found] == [(n, 3, 3, 4) for n in COUNTS.values()]
    for part, same in zip(found, whole, strict=True):
        assert torch.equal(part.labels, same.resized(3, 4).labels)
        assert part.names == same.names


def test_road_scenes_are_drawn_in_the_size_that_is_asked_for_and_need_no_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # All 701 would take seconds.
    monkeypatch.setattr(
        "symoptim.paper.data.datasets.load_roads",
        lambda **size: SceneSplit(*(draw_roads(2, seed=seed, **size) for seed in range(3))),
    )
    found = load_scenes("roads", None, (6, 10))
    assert [tuple(part.images.shape) for part in found] == [(2, 3, 6, 10)] * 3


def test_camvid_is_looked_for_in_the_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path} has no CamVid"):
        load_scenes("camvid", tmp_path, (3, 4))

from pathlib import Path

import pytest
import torch

from small import small_data
from symoptim.errors import DataError
from symoptim.experiments.datasets import digest_of, load


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

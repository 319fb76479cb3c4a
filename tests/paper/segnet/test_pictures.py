import io

import numpy as np
import torch
from PIL import Image

from symoptim.paper.segnet.pictures import jpeg, label_png
from tests.support.small_scenes import small_scenes


def decoded(picture: bytes) -> tuple[str, torch.Tensor]:
    """Format and pixels of a picture file."""
    with Image.open(io.BytesIO(picture)) as image:
        return image.format or "", torch.tensor(np.asarray(image))


def test_a_label_picture_has_every_label() -> None:
    labels = torch.arange(12 * 20, dtype=torch.uint8).reshape(12, 20)
    for piece in (labels, labels[:, ::2], labels.T, small_scenes().test.labels[0]):
        kind, pixels = decoded(label_png(piece))
        assert kind == "PNG"
        assert torch.equal(pixels, piece)


def test_a_picture_of_an_image_is_close_to_it() -> None:
    y, x = torch.meshgrid(torch.arange(40), torch.arange(60), indexing="ij")
    image = torch.stack([3 * y, 2 * x, 200 - 2 * y - x]).to(torch.uint8)
    kind, pixels = decoded(jpeg(image))
    assert kind == "JPEG"
    assert pixels.shape == (40, 60, 3)
    assert (pixels.permute(2, 0, 1).int() - image.int()).abs().float().mean() < 3


def test_a_picture_of_a_scene_takes_fewer_bytes_than_the_scene() -> None:
    image = small_scenes().test.images[0].repeat_interleave(8, dim=1).repeat_interleave(8, dim=2)
    assert len(jpeg(image)) < image.numel() / 4

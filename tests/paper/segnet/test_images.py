import io

import numpy as np
import torch
from PIL import Image

from symoptim.paper.segnet.images import Standardize, jpeg, label_png
from tests.support.small_scenes import small_scenes


def test_every_color_has_mean_zero_and_deviation_one() -> None:
    images = torch.randint(256, (35, 3, 6, 7), dtype=torch.uint8)  # more than are added up at once
    images[:, 1] //= 4
    found = Standardize(images)(images.float()).double()
    torch.testing.assert_close(found.mean(dim=(0, 2, 3)), torch.zeros(3).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(found.var(dim=(0, 2, 3), correction=0), torch.ones(3).double())


def test_it_is_the_images_it_was_made_of_that_are_measured() -> None:
    train, test = small_scenes().train.images, small_scenes().test.images
    mean = train.double().mean(dim=(0, 2, 3))[:, None, None]
    deviation = train.double().std(dim=(0, 2, 3), correction=0)[:, None, None]
    expected = ((test.double() - mean) / deviation).float()
    torch.testing.assert_close(Standardize(train)(test.float()), expected)


def test_images_of_a_single_color_give_no_infinities() -> None:
    images = torch.full((2, 3, 4, 4), 200, dtype=torch.uint8)
    assert torch.equal(Standardize(images)(images.float()), torch.zeros(2, 3, 4, 4))


def test_what_was_measured_goes_with_the_weights() -> None:
    one, other = (Standardize(part.images) for part in (small_scenes().train, small_scenes().test))
    assert not list(one.parameters())
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.mean, one.mean)
    assert torch.equal(other.deviation, one.deviation)


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

import torch

from symoptim.paper.segnet.pixels import Standardize
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

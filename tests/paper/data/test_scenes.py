import pytest
import torch
from torch.nn.functional import interpolate

from symoptim.paper.data.roads import draw_roads
from symoptim.paper.data.scenes import Scenes
from tests.support.small_scenes import small_scenes


def test_colors_are_averaged() -> None:
    scenes = small_scenes().train
    expected = scenes.images.double().unfold(2, 4, 4).unfold(3, 4, 4).mean(dim=(-2, -1))
    found = scenes.resized(4, 6).images
    assert found.dtype == torch.uint8
    assert (found.double() - expected).abs().max() <= 0.5 + 1e-4  # rounded, not cut off


@pytest.mark.parametrize("size", [(8, 12), (5, 7), (9, 24), (32, 48), (33, 50)])
def test_labels_are_those_of_the_nearest_pixels(size: tuple[int, int]) -> None:
    scenes = small_scenes().validation
    expected = interpolate(scenes.labels[:, None].double(), size, mode="nearest-exact")[:, 0]
    found = scenes.resized(*size)
    assert torch.equal(found.labels, expected.to(torch.uint8))
    assert found.images.shape == (5, 3, *size)


def test_images_and_labels_stay_in_step() -> None:
    labels = torch.arange(5, dtype=torch.uint8).repeat_interleave(6)[None, None].expand(1, 20, 30)
    scenes = Scenes(labels[:, None].expand(-1, 3, -1, -1), labels, ("steps",)).resized(10, 15)
    assert torch.equal(scenes.images[:, 0], scenes.labels)


def test_many_images_keep_their_order_and_their_names() -> None:
    scenes = draw_roads(20, height=8, width=8)  # more than are resized at once
    found = scenes.resized(4, 4)
    assert found.names == scenes.names
    for k in (0, 15, 16, 19):
        alone = Scenes(scenes.images[k : k + 1], scenes.labels[k : k + 1], ("alone",)).resized(4, 4)
        assert torch.equal(found.images[k], alone.images[0])
        assert torch.equal(found.labels[k], alone.labels[0])


def test_scenes_of_the_right_size_are_left_as_they_are() -> None:
    scenes = small_scenes().test
    assert scenes.resized(16, 24) is scenes

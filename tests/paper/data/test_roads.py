import pytest
import torch

from symoptim.errors import OptionError
from symoptim.paper.data.classes import CLASSES, VOID
from symoptim.paper.data.roads import COLORS, draw_roads, load_roads


def test_the_same_seed_draws_the_same_scenes_and_another_others() -> None:
    one, again, other = draw_roads(3, seed=1), draw_roads(3, seed=1), draw_roads(3, seed=2)
    assert torch.equal(one.images, again.images)
    assert torch.equal(one.labels, again.labels)
    assert not torch.equal(one.labels, other.labels)
    assert one.names == ("road_1_0", "road_1_1", "road_1_2")


def test_every_class_occurs_and_no_pixel_is_without_one() -> None:
    labels = draw_roads(60).labels
    assert set(labels.unique().tolist()) == set(COLORS) == set(range(len(CLASSES)))
    assert not (labels == VOID).any()


def test_scenes_are_laid_out_as_streets_are() -> None:
    labels = draw_roads(60).labels
    sky, road = (labels == 0).float().mean(dim=(0, 2)), (labels == 3).float().mean(dim=(0, 2))
    assert sky[:5].mean() > 0.5 > sky[-5:].mean()
    assert road[:30].mean() == 0
    assert road[-5:].mean() > 0.5


def test_colors_alone_do_not_give_the_class_away() -> None:
    """The nearest mean color is right for fewer than three pixels in four."""
    scenes = draw_roads(40)
    pixels = scenes.images.permute(0, 2, 3, 1).reshape(-1, 3).float()
    labels = scenes.labels.flatten().long()
    means = torch.stack([pixels[labels == k].mean(dim=0) for k in COLORS])
    nearest = torch.cdist(pixels, means).argmin(dim=1)
    assert 0.2 < (nearest == labels).float().mean() < 0.75


def test_sizes_are_what_is_asked_for() -> None:
    scenes = draw_roads(2, height=33, width=47)
    assert scenes.images.shape == (2, 3, 33, 47)
    assert scenes.labels.shape == (2, 33, 47)
    with pytest.raises(OptionError, match="must be at least 1, got 0, 90 and 120"):
        draw_roads(0)


def test_the_parts_of_a_split_share_no_scene() -> None:
    split = load_roads(height=9, width=12)
    assert [len(part.names) for part in split] == [367, 101, 233]
    images = torch.cat([part.images for part in split]).flatten(1)
    assert len(images.unique(dim=0)) == len(images)

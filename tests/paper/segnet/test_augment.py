import pytest
import torch

from symoptim.errors import OptionError
from symoptim.paper.data.classes import VOID
from symoptim.paper.segnet.augment import CHANCES, Augmentation, augment, chances


def a_batch(count: int = 4, height: int = 5, width: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels are all different, and every color of an image is its label, to be checked against it."""
    labels = torch.arange(count * height * width).reshape(count, height, width)
    return labels.unsqueeze(1).expand(-1, 3, -1, -1).clone(), labels


def test_nothing_is_done_unless_asked_for() -> None:
    images, labels = a_batch()
    found = augment(images, labels, Augmentation(), torch.zeros(4, CHANCES))
    assert torch.equal(found[0], images)
    assert torch.equal(found[1], labels)


def test_about_half_are_mirrored_and_the_others_are_not() -> None:
    images, labels = a_batch()
    chance = torch.zeros(4, CHANCES)
    chance[:, 0] = torch.tensor([0.0, 0.49, 0.5, 0.99])
    flipped, turned = augment(images, labels, Augmentation(flip=True), chance)
    assert torch.equal(turned[:2], labels[:2].flip(-1))
    assert torch.equal(turned[2:], labels[2:])
    assert torch.equal(flipped[:, 1], turned)


def test_a_crop_is_a_piece_of_the_image_and_labels_stay_in_step() -> None:
    images, labels = a_batch()
    cut, pieces = augment(images, labels, Augmentation(flip=True, crop=(3, 4)), chances(0, 1, range(4)))
    assert cut.shape == (4, 3, 3, 4)
    for color in range(3):
        assert torch.equal(cut[:, color], pieces)
    for k in range(4):
        rows = pieces[k].diff(dim=0)
        assert (rows == 7).all()
        assert (pieces[k].diff(dim=1).abs() == 1).all()
        assert set(pieces[k].flatten().tolist()) <= set(labels[k].flatten().tolist())


def test_every_place_of_a_crop_occurs() -> None:
    images, labels = a_batch(300)
    _, pieces = augment(images, labels, Augmentation(crop=(3, 4)), chances(0, 1, range(300)))
    corners = {(int(p[0, 0] - k * 35) // 7, int(p[0, 0] - k * 35) % 7) for k, p in enumerate(pieces)}
    assert corners == {(y, x) for y in range(3) for x in range(4)}


def test_a_crop_of_the_whole_image_is_the_image() -> None:
    images, labels = a_batch()
    whole, same = augment(images, labels, Augmentation(crop=(5, 7)), torch.full((4, CHANCES), 0.999999))
    assert torch.equal(whole, images)
    assert torch.equal(same, labels)


@pytest.mark.parametrize(
    ("crop", "message"), [((6, 7), "6 pixels does not fit into 5"), ((5, 8), "8 pixels")]
)
def test_a_crop_larger_than_the_image_is_refused(crop: tuple[int, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        augment(*a_batch(), Augmentation(crop=crop), torch.zeros(4, CHANCES))


def test_an_empty_crop_is_refused() -> None:
    with pytest.raises(OptionError, match="crop must be at least 1 x 1 pixels, got 0 x 4"):
        Augmentation(crop=(0, 4))


def test_chances_are_decided_by_seed_epoch_and_image_alone() -> None:
    together = chances(3, 4, [8, 2, 5])
    assert torch.equal(chances(3, 4, [5, 8]), together[[2, 0]])
    for other in (chances(3, 5, [8]), chances(2, 4, [8]), chances(3, 4, [9])):
        assert not torch.equal(other[0], together[0])
    assert ((together >= 0) & (together < 1)).all()


LABELS = VOID + 1 + torch.arange(32).reshape(4, 8)  # no two alike, none of them void


def zoomed(size: float, *, y: float = 0.5, x: float = 0.5) -> torch.Tensor:
    """Labels of a 4 x 8 image seen through a window of that size, its place between 0 and 1."""
    rows, columns = torch.meshgrid(torch.arange(4), torch.arange(8), indexing="ij")
    images = torch.stack([rows, columns, LABELS]).double()[None]  # shows where each of its pixels is
    chance = torch.tensor([[0.0, 0, 0, 0.5, x, y]], dtype=torch.float64)
    seen, found = augment(images, LABELS[None], Augmentation(zoom=(size, size)), chance)
    inside = found[0] != VOID
    places = torch.stack([(found[0] - LABELS[0, 0]) // 8, (found[0] - LABELS[0, 0]) % 8])
    # The label is that of the nearest pixel; with these sizes nothing is seen halfway between two.
    assert ((seen[0, :2] - places)[:, inside].abs() < 0.4).all()
    return found[0]


def test_a_zoom_of_one_is_the_image() -> None:
    assert torch.equal(zoomed(1.0), LABELS)


def test_a_small_window_is_magnified_wherever_it_is() -> None:
    for y, x, piece in ((0, 0, LABELS[:2, :4]), (1, 0, LABELS[2:, :4]), (0, 1, LABELS[:2, 4:])):
        whole = piece.repeat_interleave(2, dim=0).repeat_interleave(2, dim=1)
        assert torch.equal(zoomed(0.5, y=y, x=x), whole)


def test_around_an_image_in_a_large_window_nothing_has_a_class() -> None:
    expected = torch.full((2, 4, 8), VOID)
    expected[0, :3, :5] = LABELS[[0, 2, 3]][:, [0, 2, 3, 5, 6]]  # seen at 1/4, 7/4, 13/4 ...
    expected[1, 1:, 3:] = LABELS[[0, 1, 3]][:, [1, 2, 4, 5, 7]]
    assert torch.equal(zoomed(1.5, y=0, x=0), expected[0])
    assert torch.equal(zoomed(1.5, y=1, x=1), expected[1])


def test_sizes_of_windows_are_spread_over_the_whole_range() -> None:
    images, labels = torch.zeros(200, 3, 40, 40), torch.zeros(200, 40, 40, dtype=torch.uint8)
    _, found = augment(images, labels, Augmentation(zoom=(1.0, 2.0)), chances(0, 1, range(200)))
    shares = (found != VOID).float().mean(dim=(1, 2))  # 1 / size^2
    assert 0.25 <= shares.min() < 0.3
    assert 0.9 < shares.max() <= 1.0


@pytest.mark.parametrize("zoom", [(0.0, 1.0), (2.0, 1.0)])
def test_a_zoom_that_is_no_range_is_refused(zoom: tuple[float, float]) -> None:
    with pytest.raises(OptionError, match="0 < low <= high"):
        Augmentation(zoom=zoom)

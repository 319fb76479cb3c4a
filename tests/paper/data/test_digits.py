import torch

from symoptim.paper.data.digits import load_digits


def test_every_digit_is_in_exactly_one_part_and_pixels_are_in_the_unit_interval() -> None:
    split = load_digits()
    assert len(split.train_labels) == 1500
    assert len(split.test_labels) == 297
    images = torch.cat([split.train_images, split.test_images])
    assert images.min() == 0
    assert images.max() == 1
    assert split.train_labels.unique().tolist() == list(range(10))
    whole = load_digits(test=1)
    rows = torch.cat([whole.train_images, whole.test_images])
    assert sorted(map(tuple, images.tolist())) == sorted(map(tuple, rows.tolist()))


def test_the_split_is_the_same_every_time_and_another_for_another_seed() -> None:
    assert torch.equal(load_digits().train_labels, load_digits().train_labels)
    assert not torch.equal(load_digits().train_labels, load_digits(seed=1).train_labels)

import pytest
import torch

from symoptim.errors import DataError, OptionError
from symoptim.paper.data.classes import CLASSES, VOID
from symoptim.paper.segnet.labels import class_weights, confusion


def test_pixels_without_a_class_do_not_count() -> None:
    truth, predicted = torch.tensor([[0, 1, 11], [11, 1, 0]]), torch.tensor([[0, 0, 1], [0, 1, 0]])
    assert confusion(truth, predicted, 2, void=11).tolist() == [[2, 0], [1, 1]]


def test_batches_add_up() -> None:
    generator = torch.Generator().manual_seed(1)
    truth, predicted = (torch.randint(3, (10, 4), generator=generator) for _ in range(2))
    parts = sum(confusion(truth[k : k + 3], predicted[k : k + 3], 3) for k in range(0, 10, 3))
    assert torch.equal(parts, confusion(truth, predicted, 3))


@pytest.mark.parametrize(
    ("truth", "predicted", "message"),
    [
        ([0, 7], [0, 0], "label 7 is not a class: there are 2"),
        ([0, 1], [0, 2], "prediction 2 is not a class"),
    ],
)
def test_what_is_no_class_is_named(truth: list[int], predicted: list[int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        confusion(torch.tensor(truth), torch.tensor(predicted), 2)


def test_median_frequency_weights_are_what_the_definition_says() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (5, 6, 7), generator=generator)
    labels[0][labels[0] == 2] = 3  # class 2 is not in the first image, and 3 is no class
    frequencies = []
    for k in range(3):
        with_it = [image for image in labels if (image == k).any()]
        frequencies.append(sum(int((i == k).sum()) for i in with_it) / (42 * len(with_it)))
    expected = [sorted(frequencies)[1] / f for f in frequencies]
    found = class_weights(labels, 3, "median")
    assert found.tolist() == pytest.approx(expected)
    assert class_weights(labels, 3, "root").tolist() == pytest.approx([w**0.5 for w in expected])
    assert class_weights(labels, 3, "none").tolist() == [1, 1, 1]


def test_a_class_that_does_not_occur_is_named() -> None:
    with pytest.raises(DataError, match=r"^class 1 occurs in no training image"):
        class_weights(torch.zeros(2, 3, 3), 2, "median")


def test_a_class_of_camvid_is_called_by_its_name_and_there_is_a_way_out() -> None:
    labels = torch.arange(len(CLASSES)).repeat(2, 1, 1)
    labels[labels == 2] = VOID
    with pytest.raises(DataError, match=r"^pole occurs in no training image: .* \(--weighting none\)$"):
        class_weights(labels, len(CLASSES), "root")
    assert class_weights(labels, len(CLASSES), "none").tolist() == [1] * len(CLASSES)


def test_camvid_has_eleven_classes_of_different_colors() -> None:
    assert VOID == len(CLASSES) == 11
    assert len({kind.color for kind in CLASSES}) == 11
    assert CLASSES[3].name == "road"

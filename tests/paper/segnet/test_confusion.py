import pytest
import torch

from symoptim.errors import OptionError
from symoptim.paper.segnet.confusion import confusion


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

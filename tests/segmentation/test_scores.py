import math

import pytest
import torch

from symoptim.errors import OptionError
from symoptim.segmentation.scores import confusion, scores_of


def by_hand(truth: list[int], predicted: list[int], classes: int) -> tuple[float, float, float]:
    """The definitions, pixel by pixel."""
    pairs = list(zip(truth, predicted, strict=True))
    recalls, ious = [], []
    for k in range(classes):
        hits = sum(t == p == k for t, p in pairs)
        there, said = sum(t == k for t, _ in pairs), sum(p == k for _, p in pairs)
        if there:
            recalls.append(hits / there)
        if there + said - hits:
            ious.append(hits / (there + said - hits))
    accuracy = sum(t == p for t, p in pairs) / len(pairs)
    return accuracy, sum(recalls) / len(recalls), sum(ious) / len(ious)


def test_scores_are_what_the_definitions_say() -> None:
    generator = torch.Generator().manual_seed(0)
    truth, predicted = (torch.randint(5, (3, 7, 8), generator=generator) for _ in range(2))
    truth[truth == 3] = 2  # a class that is not there, but predicted
    found = scores_of(confusion(truth, predicted, 5))
    expected = by_hand(truth.flatten().tolist(), predicted.flatten().tolist(), 5)
    assert found[:3] == pytest.approx(expected)
    assert math.isnan(found.accuracies[3])
    assert found.ious[3] == 0


def test_pixels_without_a_class_do_not_count() -> None:
    truth, predicted = torch.tensor([[0, 1, 11], [11, 1, 0]]), torch.tensor([[0, 0, 1], [0, 1, 0]])
    assert confusion(truth, predicted, 2, void=11).tolist() == [[2, 0], [1, 1]]


def test_a_class_that_is_nowhere_has_no_part_in_the_means() -> None:
    found = scores_of(confusion(torch.tensor([0, 1]), torch.tensor([0, 1]), 4))
    assert (found.class_accuracy, found.mean_iou) == (1.0, 1.0)
    assert math.isnan(found.ious[3])


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


def test_scores_are_torchmetrics_scores() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    generator = torch.Generator().manual_seed(2)
    truth, predicted = (torch.randint(6, (4, 9, 9), generator=generator) for _ in range(2))
    truth[0, :2] = 11
    found = scores_of(confusion(truth, predicted, 6, void=11))
    options = {"task": "multiclass", "num_classes": 6, "ignore_index": 11}
    accuracy = torchmetrics.Accuracy(**options, average="micro")(predicted, truth)
    recall = torchmetrics.Recall(**options, average="macro")(predicted, truth)
    iou = torchmetrics.JaccardIndex(**options, average="macro")(predicted, truth)
    assert found[:3] == pytest.approx([float(accuracy), float(recall), float(iou)], rel=1e-5)

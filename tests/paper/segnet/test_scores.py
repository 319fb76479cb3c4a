import math

import pytest
import torch

from symoptim.paper.segnet.labels import confusion
from symoptim.paper.segnet.scores import scores_of


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
    found = scores_of(confusion(truth, predicted, 5).tolist())
    expected = by_hand(truth.flatten().tolist(), predicted.flatten().tolist(), 5)
    assert found[:3] == pytest.approx(expected)
    assert math.isnan(found.accuracies[3])
    assert found.ious[3] == 0


def test_a_class_that_is_nowhere_has_no_part_in_the_means() -> None:
    found = scores_of(confusion(torch.tensor([0, 1]), torch.tensor([0, 1]), 4).tolist())
    assert (found.class_accuracy, found.mean_iou) == (1.0, 1.0)
    assert math.isnan(found.ious[3])


def test_scores_are_torchmetrics_scores() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    generator = torch.Generator().manual_seed(2)
    truth, predicted = (torch.randint(6, (4, 9, 9), generator=generator) for _ in range(2))
    truth[0, :2] = 11
    found = scores_of(confusion(truth, predicted, 6, void=11).tolist())
    options = {"task": "multiclass", "num_classes": 6, "ignore_index": 11}
    accuracy = torchmetrics.Accuracy(**options, average="micro")(predicted, truth)
    recall = torchmetrics.Recall(**options, average="macro")(predicted, truth)
    iou = torchmetrics.JaccardIndex(**options, average="macro")(predicted, truth)
    assert found[:3] == pytest.approx([float(accuracy), float(recall), float(iou)], rel=1e-5)

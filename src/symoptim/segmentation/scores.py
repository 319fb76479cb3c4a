"""Scores of a segmentation: one confusion matrix over the whole set, pixels without a class left out.

    global     share of pixels that are right
    class      mean over classes of the share of their pixels that are right (recall)
    mean IoU   mean over classes of intersection over union, TP / (TP + FP + FN)

as the authors of SegNet compute them (arXiv:1511.00561, section 4). Axis letters: k true class, j predicted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.errors import OptionError


class Scores(NamedTuple):
    """All between 0 and 1; a class that is neither there nor predicted has NaN, and no part in the means."""

    global_accuracy: float
    class_accuracy: float
    mean_iou: float
    accuracies: tuple[float, ...]
    ious: tuple[float, ...]


def confusion(truth: Tensor, predicted: Tensor, classes: int, *, void: int | None = None) -> Tensor:
    """Count pixels by true and predicted class.

    Args:
        truth: labels, integers of any shape.
        predicted: predicted classes, of that shape.
        classes: number of classes.
        void: label of pixels that do not count.

    Returns:
        Counts ``(k, j)``; matrices of several batches add up.

    Raises:
        OptionError: a label or a prediction is not a class.

    >>> confusion(torch.tensor([0, 1, 1, 9]), torch.tensor([0, 1, 0, 1]), 2, void=9)
    tensor([[1, 0],
            [1, 1]])
    """
    counted = torch.ones_like(truth, dtype=torch.bool) if void is None else truth != void
    rows, columns = truth[counted].long(), predicted[counted].long()
    for name, values in (("label", rows), ("prediction", columns)):
        if values.numel() and not (int(values.min()) >= 0 and int(values.max()) < classes):
            wrong = int(values[(values < 0) | (values >= classes)][0])
            raise OptionError(f"{name} {wrong} is not a class: there are {classes}")
    return torch.bincount(rows * classes + columns, minlength=classes**2).reshape(classes, classes)


def scores_of(matrix: Tensor) -> Scores:
    """Scores of a confusion matrix.

    Args:
        matrix: counts ``(k, j)``.

    Returns:
        The scores.

    >>> scores_of(torch.tensor([[8, 2], [0, 10]])).mean_iou
    0.8166666666666667
    """
    counts = matrix.double()
    right = counts.diagonal()
    true, predicted = counts.sum(dim=1), counts.sum(dim=0)
    accuracies = right / true  # NaN for a class that is not there
    ious = right / (true + predicted - right)
    return Scores(
        float(right.sum() / counts.sum()),
        float(accuracies.nanmean()),
        float(ious.nanmean()),
        _floats(accuracies),
        _floats(ious),
    )


def _floats(values: Sequence[Tensor] | Tensor) -> tuple[float, ...]:
    return tuple(float(value) for value in values)

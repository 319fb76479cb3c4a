"""Scores of a segmentation: one confusion matrix over the whole set, pixels without a class left out.

    global     share of pixels that are right
    class      mean over classes of the share of their pixels that are right (recall)
    mean IoU   mean over classes of intersection over union, TP / (TP + FP + FN)

as the authors of SegNet compute them (arXiv:1511.00561, section 4). Axis letters: k true class, j predicted.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Scores(NamedTuple):
    """All between 0 and 1; a class that is neither there nor predicted has NaN, and no part in the means."""

    global_accuracy: float
    class_accuracy: float
    mean_iou: float
    accuracies: tuple[float, ...]
    ious: tuple[float, ...]


def scores_of(matrix: Sequence[Sequence[int]]) -> Scores:
    """Scores of a confusion matrix.

    >>> scores_of([[8, 2], [0, 10]]).mean_iou
    0.8166666666666667
    """
    right = [row[k] for k, row in enumerate(matrix)]
    true = [sum(row) for row in matrix]
    predicted = [sum(column) for column in zip(*matrix, strict=True)]
    accuracies = tuple(map(_share, right, true))
    unions = [t + p - r for t, p, r in zip(true, predicted, right, strict=True)]
    ious = tuple(map(_share, right, unions))
    return Scores(_share(sum(right), sum(true)), _mean(accuracies), _mean(ious), accuracies, ious)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _mean(values: Iterable[float]) -> float:
    """Mean of those that are numbers."""
    there = [value for value in values if not math.isnan(value)]
    return statistics.fmean(there) if there else math.nan

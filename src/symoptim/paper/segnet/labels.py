"""Labels counted: confusion matrices, and weights of classes in the loss.

The frequency of a class is its share of the pixels of the images it occurs in; its weight is the median of
all frequencies over its own (Eigen and Fergus, arXiv:1411.4734; used for SegNet, arXiv:1511.00561).
"""

import torch
from torch import Tensor

from symoptim.errors import DataError, OptionError
from symoptim.paper.choices import Weighting
from symoptim.paper.data.classes import CLASSES


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


def class_weights(labels: Tensor, classes: int, weighting: Weighting) -> Tensor:
    """Weight of every class.

    Args:
        labels: of all training images, ``(n, h, w)``; values of ``classes`` and above are no class.
        classes: number of classes.
        weighting: none gives ones; root the square roots of the median-frequency weights.

    Returns:
        Weights ``(classes,)``.

    Raises:
        DataError: a class does not occur, so that it has no frequency.

    >>> labels = torch.tensor([[[0, 0, 0, 1]], [[0, 0, 0, 0]]])
    >>> class_weights(labels, 2, "median").tolist()
    [0.2857142984867096, 1.0]
    """
    if weighting == "none":
        return torch.ones(classes)
    counts = torch.stack([(labels == k).flatten(1).sum(dim=1) for k in range(classes)])
    pixels = (counts > 0).sum(dim=1) * labels[0].numel()
    absent = [k for k in range(classes) if pixels[k] == 0]
    if absent:
        name = CLASSES[absent[0]].name if classes == len(CLASSES) else f"class {absent[0]}"
        raise DataError(
            f"{name} occurs in no training image: it has no frequency to weight it by; weight no classes "
            "(--weighting none)"
        )
    frequencies = counts.sum(dim=1).double() / pixels
    weights = frequencies.median() / frequencies
    return (weights.sqrt() if weighting == "root" else weights).float()

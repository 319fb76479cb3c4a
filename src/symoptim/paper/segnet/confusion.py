"""Count pixels by true and predicted class. Axis letters: k true class, j predicted."""

import torch
from torch import Tensor

from symoptim.errors import OptionError


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

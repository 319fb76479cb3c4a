"""What every data set is to the rest of the package."""

from typing import NamedTuple

from torch import Tensor


class Split(NamedTuple):
    """Images ``(n, pixels)`` with values in [0, 1] and labels ``(n,)``, for training and for testing."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

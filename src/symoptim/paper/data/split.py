"""What every data set is to the rest of the package."""

from typing import NamedTuple

import torch
from torch import Tensor


class Split(NamedTuple):
    """Images ``(n, pixels)`` with values in [0, 1] and labels ``(n,)``, for training and for testing."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def to(self, device: torch.device) -> "Split":
        """The same on a device; what is there already is not copied."""
        return Split(*(tensor.to(device) for tensor in self))

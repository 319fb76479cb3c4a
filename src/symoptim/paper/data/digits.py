"""The embedded set: 1,797 handwritten digits of 8x8 pixels that ship with scikit-learn (extra ``paper``)."""

from typing import Any, cast

import torch

from symoptim.ensemble.images import Split


def load_digits(*, test: int = 297, seed: int = 0, dtype: torch.dtype = torch.float32) -> Split:
    """Load the digits, shuffled once by ``seed``; the last ``test`` of them are for testing.

    >>> tuple(load_digits().train_images.shape)
    (1500, 64)
    """
    # An extra, and a slow import.
    from sklearn import datasets  # pyright: ignore[reportMissingTypeStubs]

    digits = cast(Any, datasets.load_digits())
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(seed))
    pixels = torch.as_tensor(digits.data, dtype=dtype)[order] / 16
    targets = torch.as_tensor(digits.target, dtype=torch.long)[order]
    return Split(pixels[:-test], targets[:-test], pixels[-test:], targets[-test:])

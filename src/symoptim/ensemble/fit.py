"""Whether a network and a data set go together: looked at before anything is trained, and said in words."""

import torch
from torch import Tensor

from symoptim.ensemble.numerics import full_float32
from symoptim.ensemble.stack import Stack
from symoptim.errors import OptionError
from symoptim.paper.data.split import Split


def require_fit(stack: Stack, data: Split, batch: int) -> None:
    """Refuse images that networks cannot take, and training labels beyond their scores.

    Args:
        stack: the networks, of which one is shown a batch, as in evaluation; it stays as it is.
        data: what they are to learn.
        batch: images at a time.

    Raises:
        OptionError: they do not go together.

    >>> images, labels = torch.zeros(4, 3), torch.tensor([0, 1, 2, 1])
    >>> require_fit(Stack(lambda: torch.nn.Linear(3, 2), [0]), Split(images, labels, images, labels), 4)
    Traceback (most recent call last):
    symoptim.errors.OptionError: labels go up to 2, but the network has scores for 0 to 1: give it 3 outputs
    """
    images = data.train_images[:batch]
    scores = _scores(stack, images)
    if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != len(images):
        found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise OptionError(
            f"the network turns images {tuple(images.shape)} into {found}; the engine needs a tensor of "
            "scores, (images, classes)"
        )
    last, classes = int(data.train_labels.max()), scores.shape[1]
    if last >= classes:
        raise OptionError(
            f"labels go up to {last}, but the network has scores for 0 to {classes - 1}: give it {last + 1} "
            "outputs"
        )


@torch.no_grad()
def _scores(stack: Stack, images: Tensor) -> object:
    """What the first network makes of images."""
    try:
        with full_float32():
            return stack.first_scores(images)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        shape, dtype = tuple(images.shape[1:]), images.dtype
        raise OptionError(f"the network cannot take images of shape {shape}, {dtype}: {error}") from error

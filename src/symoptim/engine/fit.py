"""Whether a network and a data set go together: looked at before anything is trained, and said in words."""

import copy

import torch
from torch import Tensor, nn

from symoptim.data.split import Split
from symoptim.engine.numerics import seeded
from symoptim.errors import OptionError


def require_fit(network: nn.Module, data: Split) -> None:
    """Refuse images a network cannot take, and labels it has no score for.

    Args:
        network: on the CPU; it stays as it is.
        data: what it is to learn.

    Raises:
        OptionError: they do not go together.

    >>> images, labels = torch.zeros(4, 3), torch.tensor([0, 1, 2, 1])
    >>> require_fit(nn.Linear(3, 2), Split(images, labels, images, labels))
    Traceback (most recent call last):
    symoptim.errors.OptionError: labels go up to 2, but the network has scores for 0 to 1: give it 3 outputs
    """
    images = data.train_images[:2].cpu()
    scores = _scores(network, images)
    if scores.ndim != 2 or len(scores) != len(images):
        raise OptionError(
            f"the network turns images {tuple(images.shape)} into {tuple(scores.shape)}; the engine needs a "
            "score for every class, (images, classes)"
        )
    last, classes = (
        max(int(labels.max()) for labels in (data.train_labels, data.test_labels)),
        scores.shape[1],
    )
    if last >= classes:
        raise OptionError(
            f"labels go up to {last}, but the network has scores for 0 to {classes - 1}: give it {last + 1} "
            "outputs"
        )


@torch.no_grad()
def _scores(network: nn.Module, images: Tensor) -> Tensor:
    try:
        with seeded(0):
            return copy.deepcopy(network).eval()(images)
    except RuntimeError as error:
        shape, dtype = tuple(images.shape[1:]), images.dtype
        raise OptionError(f"the network cannot take images of shape {shape}, {dtype}: {error}") from error

"""Statistics of batch normalization, measured anew over a whole set before a network is evaluated.

As the authors of SegNet do: a pass over the training images, in which every layer averages the means and
variances of the batches it sees, in place of the running average that training leaves.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage] - torch has no other name


@torch.no_grad()
def reestimate_(
    model: nn.Module, batches: Iterable[Tensor], *, call: Callable[[Tensor], object] | None = None
) -> None:
    """Replace all running statistics by averages over these batches, and put the network in evaluation mode.

    Args:
        model: the network; one without batch normalization is left as it is.
        batches: its inputs.
        call: calls the network on a batch, where ``model(batch)`` is not the way.

    >>> layer = nn.BatchNorm1d(1)
    >>> reestimate_(layer, [torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [6.0]])])
    >>> layer.running_mean, layer.running_var
    (tensor([3.]), tensor([2.]))
    """
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    model.train()
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # torch's word for a plain average
        if layers:
            for batch in batches:
                (call or model)(batch)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.eval()

"""The paper's start: every filter of every layer of unit norm."""

import torch
from torch import nn

from symoptim.errors import ZeroFilterError
from symoptim.geometry.filters import lacks_direction
from symoptim.geometry.unit_norm import normalize
from symoptim.routing import axes_of, route


@torch.no_grad()
def balance_(model: nn.Module) -> nn.Module:
    """Divide every filter of every linear and convolution layer by its norm, in place.

    The classifier is normalized by rows too ("each class vector is unit-normalized", arXiv:1511.01754).
    This is a start for training, not a symmetry: unless the scales are swallowed by normalization layers
    it changes what the network computes.

    Args:
        model: the network.

    Returns:
        The same network.

    Raises:
        ZeroFilterError: a filter is zero; then nothing has been changed.

    >>> model = balance_(nn.Linear(3, 2))
    >>> model.weight.norm(dim=1).allclose(torch.ones(2))
    True
    """
    filters = [routed for routed in route(model) if routed.role.geometry != "plain"]
    for names, weight, role in filters:
        if lacks_direction(weight, axes_of("rows", role.axis, weight.ndim)).any():
            raise ZeroFilterError(
                f"parameter '{names[0]}' has filters that are zero, not finite, or too small or large to "
                "square: initialize the model first"
            )
    for _, weight, role in filters:
        weight.copy_(normalize(weight, axes_of("rows", role.axis, weight.ndim)))
    return model

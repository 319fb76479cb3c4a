"""The paper's start: every filter of every layer of unit norm."""

from typing import Literal

import torch
from torch import Tensor, nn

from symoptim.errors import ZeroFilterError
from symoptim.geometry.filters import lacks_direction, update_dtype
from symoptim.geometry.unit_norm import normalize
from symoptim.routing import axes_of, route


@torch.no_grad()
def balance_(model: nn.Module, *, classifier: Literal["rows", "columns"] = "rows") -> nn.Module:
    """Divide every filter that :func:`symoptim.param_groups` would find by its norm, in place.

    The classifier is normalized by rows too ("each class vector is unit-normalized", arXiv:1511.01754), or by
    columns, as a descendant of its authors' code does. This is a start for training, not a symmetry: unless
    the scales are swallowed by normalization layers it changes what the network computes.

    Args:
        model: the network.
        classifier: what of the last linear map gets unit norm.

    Returns:
        The same network.

    Raises:
        ZeroFilterError: a filter is zero; then nothing has been changed.

    >>> model = balance_(nn.Linear(3, 2))
    >>> model.weight.norm(dim=1).allclose(torch.ones(2))
    True
    """
    balanced: list[tuple[nn.Parameter, Tensor]] = []
    for names, weight, role in route(model):
        if role.geometry == "plain":
            continue
        over = axes_of(classifier if role.geometry == "columns" else "rows", role.axis, weight.ndim)
        if lacks_direction(weight, over).any():
            raise ZeroFilterError(
                f"parameter '{names[0]}' has filters that are zero, not finite, or too small or large to "
                "square: initialize the model first"
            )
        balanced.append((weight, normalize(weight.to(update_dtype(weight.dtype)), over)))
    for weight, new in balanced:
        weight.copy_(new)
    return model

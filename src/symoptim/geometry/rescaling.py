"""The rescalings the paper names: they change the weights and not the function.

Arch1 (ReLU, max over pairs, no normalization), eqs. (1)-(2) of arXiv:1511.01754 for any depth:

    W_l   -> a_l W_l                        one positive number for every hidden layer but the last
    W_L   -> diag(b_1, b_1, b_2, b_2, ...) W_L            equal within each pair the max is taken over
    theta -> theta diag(b_1, b_2, ...)^-1 / (a_1 ... a_{L-1})

Arch2 (batch normalization after every hidden layer), eq. (3):

    W_l   -> diag(a_l) W_l                  one positive number for every row of every hidden layer

Leading batch axes of the weights are leading axes of the scales. Axis letters: l layer, o row, p pair.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Weights(NamedTuple):
    """Weights of Arch1 or Arch2: hidden ``(*batch, o, i)`` each, classifier ``(*batch, K, p)``."""

    hidden: tuple[Tensor, ...]
    classifier: Tensor


class Arch1Scales(NamedTuple):
    """A group element of eqs. (1)-(2): ``layers`` ``(*batch, L - 1)``, ``pairs`` ``(*batch, p)``."""

    layers: Tensor
    pairs: Tensor


class Arch2Scales(NamedTuple):
    """A group element of eq. (3): ``rows`` ``(*batch, L, o)``."""

    rows: Tensor


Scales = Arch1Scales | Arch2Scales


def act(weights: Weights, scales: Scales) -> Weights:
    """Act on the weights with a group element; the network's function stays the same.

    >>> w = Weights(hidden=(torch.ones(2, 3), torch.ones(4, 1)), classifier=torch.ones(5, 2))
    >>> moved = act(w, Arch1Scales(layers=torch.tensor([2.0]), pairs=torch.tensor([1.0, 10.0])))
    >>> moved.hidden[1].flatten().tolist(), moved.classifier[0].tolist()
    ([1.0, 1.0, 10.0, 10.0], [0.5, 0.05000000074505806])
    """
    match scales:
        case Arch1Scales(layers=layers, pairs=pairs):
            *early, last = weights.hidden
            moved = [layers[..., index, None, None] * w for index, w in enumerate(early)]
            moved.append(pairs.repeat_interleave(2, dim=-1).unsqueeze(-1) * last)
            outgoing = pairs * layers.prod(dim=-1, keepdim=True)
            return Weights(tuple(moved), weights.classifier / outgoing.unsqueeze(-2))
        case Arch2Scales(rows=rows):
            hidden = tuple(rows[..., index, :, None] * w for index, w in enumerate(weights.hidden))
            return Weights(hidden, weights.classifier)


def inverse(scales: Scales) -> Scales:
    """Group element that undoes ``scales``.

    >>> inverse(Arch2Scales(rows=torch.tensor([[2.0, 4.0]]))).rows
    tensor([[0.5000, 0.2500]])
    """
    match scales:
        case Arch1Scales(layers=layers, pairs=pairs):
            return Arch1Scales(1 / layers, 1 / pairs)
        case Arch2Scales(rows=rows):
            return Arch2Scales(1 / rows)


def log_uniform(
    shape: Sequence[int], *, low: float, high: float, seed: int, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Scales whose logarithms are uniform between those of ``low`` and ``high``.

    >>> bool((log_uniform((100,), low=0.1, high=10.0, seed=0) < 10).all())
    True
    """
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(tuple(shape), generator=generator, dtype=dtype)
    return low * (high / low) ** uniform

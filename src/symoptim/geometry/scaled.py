r"""The scaled metric: lengths of changes are measured in units of the filter they change.

A change of a weight is as long as it is *relative to its filter*, so scaling a filter and the change
together leaves the length alone, and steepest descent does not depend on the scaling.

Rows (hidden layers) and columns (the classifier) differ only in ``over``; see :mod:`.filters`.
"""

from torch import Tensor

from symoptim.geometry.filters import ROWS, Axes, inner, squared_norm


def scaled_inner(w: Tensor, u: Tensor, v: Tensor, over: Axes = ROWS) -> Tensor:
    r"""Inner product of two changes in the scaled metric, summed over all filters of a weight.

    .. math:: \langle u, v \rangle_W = \operatorname{Tr}(u^\top \operatorname{diag}(W W^\top)^{-1} v)

    for rows, and :math:`\operatorname{Tr}(u \operatorname{diag}(W^\top W)^{-1} v^\top)` for columns
    (arXiv:1511.01754, eq. 8). ``w`` is W, at which the changes ``u`` and ``v`` are made; all three are
    ``(*batch, o, i)`` and the result is ``(*batch,)``. No filter of ``w`` may be zero.

    >>> import torch
    >>> w, u = torch.tensor([[3.0, 4.0]]), torch.tensor([[5.0, 0.0]])
    >>> scaled_inner(w, u, u), scaled_inner(10 * w, 10 * u, 10 * u)
    (tensor(1.), tensor(1.))
    """
    per_filter = inner(u, v, over) / squared_norm(w, over)
    return per_filter.sum(dim=tuple(range(-len(over) - 1, 0)))


def scaled_gradient(w: Tensor, g: Tensor, over: Axes = ROWS) -> Tensor:
    r"""Gradient in the scaled metric: :math:`\operatorname{diag}(W W^\top)\, G`, by rows.

    Each filter's gradient times the filter's own squared norm; ``w`` is W, ``g`` is G, both
    ``(*batch, o, i)``. By columns it is :math:`G \operatorname{diag}(W^\top W)`
    (arXiv:1511.01754, eq. 7 and Table 1).

    >>> import torch
    >>> scaled_gradient(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([[25.,  0.]])
    """
    return squared_norm(w, over) * g

r"""Sizes of all units, read off the weights level by level.

For a term of a tensor, with :math:`\lambda` the log-scales known so far,

.. math:: q_o = \sum_k W_{ok}^2\, e^{-2 \lambda_k} \qquad
          \log u_g = \frac{1}{2 a} \log \operatorname{mean}_{o \in g} q_o e^{-2 \lambda_o} ,

so that weights moved by an element l of the group have sizes :math:`\log u + l`, whatever the element: a row
of the first layer has its own norm, a later one the norm of its weights times the sizes of what they read (a
path norm; Neyshabur, Salakhutdinov, Srebro, arXiv:1506.02617).

Pure functions of tensors: they can be mapped (``torch.func.vmap``), captured and differentiated.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from symoptim.geometry.distributed import complete, gathered, replicated_like
from symoptim.metric.layout import Layout
from symoptim.metric.levels import Reading
from symoptim.metric.plan import Plan


def measured(layout: Layout, plan: Plan, weights: Mapping[str, Tensor]) -> Tensor:
    """Log-sizes of all generators, ``(generators,)``; zero for those the plan does not read.

    Args:
        layout: of the tensors.
        plan: the order of reading.
        weights: by name.

    Returns:
        One number per generator.
    """
    sizes = layout.exponents.values.new_zeros(layout.generators)
    log_scales = layout.exponents.values.new_zeros(layout.positions)
    for level in plan.levels:
        norms = torch.cat([squared_norms(r, weights[r.tensor], log_scales) for r in level.readings])
        own = norms[level.chosen] * (-2 * log_scales[level.positions]).exp()
        mean = torch.zeros_like(level.weight).index_add(0, level.unit, own) * level.weight
        # A unit that has come to nothing has no size; one is as good as any.
        size = torch.where(mean > 0, mean, 1).log() / (2 * level.exponents)
        sizes = sizes.index_copy(0, level.generators, size)
        rows, columns, values = level.resolved
        log_scales = log_scales.index_add(0, rows, values * sizes[columns])
    if plan.basis is None:
        return sizes
    rows, columns, values = plan.basis
    return torch.zeros_like(sizes).index_add(0, rows, values * sizes[columns])


def squared_norms(reading: Reading, weights: Tensor, log_scales: Tensor) -> Tensor:
    """Sums of squares over all axes but those of the reading's own term, the other terms divided out.

    Args:
        reading: which term of which tensor.
        weights: that tensor.
        log_scales: at all positions of the layout; those of the other terms are used.

    Returns:
        One number per position of the own term, in its order, beside the log-scales.
    """
    terms = (reading.own, *reading.others)
    unused = [axis for axis in range(weights.ndim) if all(term.shape[axis] == 1 for term in terms)]
    # Axes that no scale depends on go first: of a convolution a ninth is left to be multiplied.
    norms = _norms(weights, unused)
    for other in reading.others:
        norms = norms * replicated_like((-other.of(log_scales)).exp(), norms)
    rest = [axis for axis, size in enumerate(reading.own.shape) if size == 1 and axis not in unused]
    return gathered(_norms(norms, rest)).reshape(-1).to(log_scales).square()


def _norms(weights: Tensor, over: list[int]) -> Tensor:
    if not over:
        return weights
    return complete(cast("Any", torch.linalg).vector_norm(weights, dim=over, keepdim=True))

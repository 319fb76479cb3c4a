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

from symoptim.geometry.tensors import complete, gathered, replicated_like
from symoptim.metric.levels import Level, Reading
from symoptim.metric.plan import Plan
from symoptim.metric.term_layout import Layout


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
        norms = torch.cat([log_norms(one, weights[one.tensor], log_scales) for one in level.readings])
        own = norms.index_select(0, level.chosen) - log_scales.index_select(0, level.positions)
        size = _log_root_mean_square(own, level) / level.exponents
        sizes = sizes.index_copy(0, level.generators, size)
        rows, columns, values = level.resolved
        log_scales = log_scales.scatter_add(0, rows, values * sizes.index_select(0, columns))
    if plan.basis is None:
        return sizes
    rows, columns, values = plan.basis
    return torch.zeros_like(sizes).scatter_add(0, rows, values * sizes.index_select(0, columns))


def _log_root_mean_square(logs: Tensor, level: Level) -> Tensor:
    """Of every unit, from logarithms: sizes are products along paths, their squares do not fit float32."""
    largest = torch.full_like(level.weight, -torch.inf).scatter_reduce(0, level.unit, logs, "amax")
    # What has come to nothing since the plan was made has no size; it is given one that is not a disaster.
    largest = torch.where(largest == -torch.inf, 0, largest)
    squares = (2 * (logs - largest.index_select(0, level.unit))).exp()
    mean = torch.zeros_like(level.weight).scatter_add(0, level.unit, squares) * level.weight
    return largest + torch.where(mean == 0, 1, mean).log() / 2


def log_norms(reading: Reading, weights: Tensor, log_scales: Tensor) -> Tensor:
    """Logarithms of norms over all axes but those of the reading's own term, the other terms divided out.

    Norms are taken in the precision of the weights: where squares do not fit it (float32 entries of about
    1e20), they are infinite, and scales no numbers. To divide by the largest entry first, or to take norms in
    float64, would make them take two to nine times as long; kernels, which can, add up in float64.

    Args:
        reading: which term of which tensor.
        weights: that tensor.
        log_scales: at all positions of the layout; those of the other terms are used.

    Returns:
        One number per position of the own term, in its order, beside the log-scales; minus infinity for zero.
    """
    terms = (reading.own, *reading.others)
    unused = [axis for axis in reading.own.summed if all(axis in term.summed for term in terms)]
    # Axes that no scale depends on go first: of a convolution a ninth is left to be multiplied.
    norms = _norms(weights, unused)
    taken_out = torch.zeros_like(log_scales[:1])
    for other in reading.others:
        inverse = -other.of(log_scales)
        norms = norms * replicated_like((inverse - inverse.amax()).exp(), norms)
        taken_out = taken_out + inverse.amax()
    norms = _norms(norms, [axis for axis in reading.own.summed if axis not in unused])
    return gathered(norms).reshape(-1).to(log_scales).abs().log() + taken_out


def _norms(weights: Tensor, over: list[int]) -> Tensor:
    if not over:
        return weights
    return complete(cast("Any", torch.linalg).vector_norm(weights, dim=over, keepdim=True))

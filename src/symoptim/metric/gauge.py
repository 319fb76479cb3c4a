r"""Gauges: which size of a unit its incoming and its outgoing weights are measured by.

Let u be the size of what comes in to a unit (the norm of its row, times the sizes of what that reads) and v
one over the size of what goes out of it. Both move with the unit, and so does any mean of them. Each gauge
gives W[o, k] a scale s that moves as the weight does:

    =============  =================  ==========  ====================================
    gauge          rows o             columns k   s of W[o, k]
    =============  =================  ==========  ====================================
    ``Pooled``     u                  u           u_o / u_k
    ``OwnRow``     norm of that row   u           \|W[o, :] u\| / u_k
    ``PathNorm``   v                  u           v_o / u_k
    ``Geometric``  sqrt(u v)          u           sqrt(u_o v_o) / u_k
    =============  =================  ==========  ====================================

``W -= lr s^2 grad`` is then plain SGD at the point of the orbit where all sizes are one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from symoptim.metric.layout import Layout, Term
from symoptim.metric.levels import Reading
from symoptim.metric.measure import squared_norms

Weights = Mapping[str, Tensor]
Sizes = Mapping[int, Tensor]
"""Log-sizes of all generators, by direction: those of what comes in, and one over those of what goes out."""

INCOMING, OUTGOING = 1, -1


@dataclass(frozen=True, slots=True)
class Pooled:
    r"""One size u for all rows that scale together (a max-pool pair, a residual stream): their mean.

    .. math::
        s_{ok} = u_o / u_k, \quad
        u_o^2 = \operatorname{mean}_{o' \sim o} \Bigl( b_{o'}^2 + \sum_k W_{o'k}^2 u_k^2 \Bigr)
    """

    directions: ClassVar[tuple[int, ...]] = (INCOMING,)
    """Which sizes are needed."""

    def rows(self, sizes: Sizes) -> Tensor:
        """Log-sizes that outputs are measured by, ``(generators,)``."""
        return sizes[INCOMING]

    def log_scales(self, layout: Layout, sizes: Sizes, weights: Weights, alive: Tensor) -> Tensor:  # noqa: ARG002
        """Log-scales at all positions of a layout.

        Args:
            layout: of the tensors.
            sizes: log-sizes by direction.
            weights: by name.
            alive: positions that had anything but zeros when the metric was made.

        Returns:
            ``(positions,)``.
        """
        rows, columns, exponents = layout.exponents
        size = torch.where(exponents > 0, self.rows(sizes)[columns], sizes[INCOMING][columns])
        return size.new_zeros(layout.positions).index_add(0, rows, exponents * size)


@dataclass(frozen=True, slots=True)
class OwnRow(Pooled):
    r"""Every row that scales has its own norm; what reads it, the mean.

    .. math:: s_{ok} = \Bigl(\sum_{k'} W_{ok'}^2 u_{k'}^2\Bigr)^{1/2} \big/ u_k

    Rows that are zero at the start, single entries and biases take the mean too.
    """

    def log_scales(self, layout: Layout, sizes: Sizes, weights: Weights, alive: Tensor) -> Tensor:
        """Those of :class:`Pooled`, rows replaced."""
        pooled = Pooled.log_scales(self, layout, sizes, weights, alive)
        rows, _, exponents = layout.exponents
        growing = alive.new_zeros(layout.positions).index_put((rows[exponents > 0],), alive.new_ones(()))
        found = pooled
        for name, terms in layout.terms.items():
            own = next((term for term in terms if _is_rows(term, weights[name], growing & alive)), None)
            if own is not None:
                others = tuple(term for term in terms if term is not own)
                norms = squared_norms(Reading(name, own, others), weights[name], pooled)
                here = slice(own.start, own.stop)
                known = (growing & alive)[here] & (norms > 0)
                replaced = torch.where(known, torch.where(known, norms, 1).log() / 2, pooled[here])
                found = torch.cat([found[: own.start], replaced, found[own.stop :]])
        return found


def _is_rows(term: Term, weights: Tensor, growing: Tensor) -> bool:
    """Whether a term is the rows of a matrix."""
    return weights.numel() > term.stop - term.start and bool(growing[term.start : term.stop].any())


@dataclass(frozen=True, slots=True)
class PathNorm(Pooled):
    r"""Path-SGD: rows by one over the size of what goes out, columns by the size of what comes in.

    .. math:: s_{ok} = \frac{1}{u_k w_o}, \quad w_k^2 = \sum_o W_{ok}^2 w_o^2

    Ref.: Neyshabur, Salakhutdinov, Srebro, *Path-SGD*, arXiv:1506.02617, eq. (7).
    """

    directions: ClassVar[tuple[int, ...]] = (INCOMING, OUTGOING)

    def rows(self, sizes: Sizes) -> Tensor:
        """Sizes of what goes out."""
        return sizes[OUTGOING]


@dataclass(frozen=True, slots=True)
class Geometric(Pooled):
    r"""Between the two: rows by the geometric mean of what comes in and one over what goes out.

    .. math:: s_{ok}^2 = \frac{u_o}{u_k^2\, w_o}
    """

    directions: ClassVar[tuple[int, ...]] = (INCOMING, OUTGOING)

    def rows(self, sizes: Sizes) -> Tensor:
        """The mean of both."""
        return (sizes[INCOMING] + sizes[OUTGOING]) / 2


Gauge = Pooled
"""Any of them: the others are kinds of the first."""

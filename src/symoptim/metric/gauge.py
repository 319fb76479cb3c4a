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
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from symoptim.metric.levels import Reading
from symoptim.metric.reference import log_norms
from symoptim.metric.term_layout import Layout

Weights = Mapping[str, Tensor]
Sizes = Mapping[int, Tensor]
"""Log-sizes of all generators, by direction: those of what comes in, and one over those of what goes out."""

INCOMING, OUTGOING = 1, -1


class Own(NamedTuple):
    """Rows of a matrix that have a norm of their own, and which of them."""

    reading: Reading
    which: Tensor


@dataclass(frozen=True, slots=True)
class Pooled:
    r"""One size u for all rows that scale together (a max-pool pair, a residual stream): their mean.

    .. math::
        s_{ok} = u_o / u_k, \quad
        u_o^2 = \operatorname{mean}_{o' \sim o} \Bigl( b_{o'}^2 + \sum_k W_{o'k}^2 u_k^2 \Bigr)

    Matrices of one module that come in to the same units (those of a recurrent cell) count as one with more
    columns; of several modules (blocks that write to a stream) those that can be read first are taken.
    """

    directions: ClassVar[tuple[int, ...]] = (INCOMING,)
    """Which sizes are needed."""

    def rows(self, sizes: Sizes) -> Tensor:
        """Log-sizes that outputs are measured by, ``(generators,)``."""
        return sizes[INCOMING]

    def own_rows(self, layout: Layout, weights: Weights, alive: Tensor) -> tuple[Own, ...]:  # noqa: ARG002
        """Rows that have a norm of their own: none."""
        return ()

    def log_scales(self, layout: Layout, sizes: Sizes, weights: Weights, own: tuple[Own, ...]) -> Tensor:
        """Log-scales at all positions of a layout.

        Args:
            layout: of the tensors.
            sizes: log-sizes by direction.
            weights: by name.
            own: what :meth:`own_rows` has found.

        Returns:
            ``(positions,)``.
        """
        rows, columns, exponents = layout.exponents
        size = sizes[INCOMING].index_select(0, columns)
        if self.rows(sizes) is not sizes[INCOMING]:
            size = torch.where(exponents > 0, self.rows(sizes).index_select(0, columns), size)
        pooled = size.new_zeros(layout.positions).scatter_add(0, rows, exponents * size)
        found = pooled
        for reading, which in own:
            term = reading.own
            norms = log_norms(reading, weights[reading.tensor], pooled)
            replaced = torch.where(which & (norms > -torch.inf), norms, pooled[term.start : term.stop])
            found = torch.cat([found[: term.start], replaced, found[term.stop :]])
        return found


@dataclass(frozen=True, slots=True)
class OwnRow(Pooled):
    r"""Every row that scales has its own norm; what reads it, the mean.

    .. math:: s_{ok} = \Bigl(\sum_{k'} W_{ok'}^2 u_{k'}^2\Bigr)^{1/2} \big/ u_k

    Rows that are zero at the start, single entries and biases take the mean too.
    """

    def own_rows(self, layout: Layout, weights: Weights, alive: Tensor) -> tuple[Own, ...]:
        """The rows of every matrix that scale up with their unit and are not zero."""
        rows, _, exponents = layout.exponents
        growing = torch.zeros_like(alive)
        growing[rows[exponents > 0]] = True
        found: list[Own] = []
        for name, terms in layout.terms.items():
            for term in terms:
                which = (growing & alive)[term.start : term.stop]
                if weights[name].numel() > len(which) and bool(which.any()):
                    others = tuple(other for other in terms if other is not term)
                    found.append(Own(Reading(name, term, others), which))
                    break
        return tuple(found)


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


Gauge = Pooled | OwnRow | PathNorm | Geometric
"""Any of them."""

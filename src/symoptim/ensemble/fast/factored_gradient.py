r"""Gradients kept as two factors, and steps that never form their product.

The gradient of a linear map :math:`H = W X` is :math:`G = D X^\top`, D being the gradient of H. A step needs
at most two more numbers per filter, and they can be had without G:

    plain       W - r D X'                             the rate r goes into D
    scaled      W - (r |w|^2 D) X'                     so does the squared norm of a row
                W - r D (X' |w|^2)                     of a column: into X'
    unit norm   s (W - (r / a) D X'), normalized       a = 1 + r c, s its sign, c = <w, g> = <d, h>

so that every step is one product added to the weights. It equals :func:`symoptim.updates.step.step` to
rounding.

Axis letters: r run, s row of images that some runs share, o row, i column, b example.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import cast

import torch
from torch import Tensor

from symoptim.ensemble.fast import numba_layers_for
from symoptim.ensemble.fast.sparse_images import SparseBatch, is_inputs_first, make_unit_, squared_lengths
from symoptim.geometry.filters import COLUMNS, ROWS, Axes, inner, squared_norm
from symoptim.updates.catalog import PLAIN, SCALED, UNIT_NORM, Update


@dataclass(frozen=True, slots=True)
class FactoredGradient:
    """The gradient ``left @ right`` of stacked weights W ``(r, o, i)``.

    ``left`` is D ``(r, o, b)``, ``right`` is X' ``(s, b, i)``, dense or sparse, and ``responses`` is H
    ``(r, o, b)``. Where s is less than r, r / s neighboring runs have the same inputs.

    >>> FactoredGradient(torch.ones(4, 3, 5), torch.ones(2, 5, 6), torch.ones(4, 3, 5)).dense().shape
    torch.Size([4, 3, 6])
    """

    left: Tensor
    right: Tensor | SparseBatch
    responses: Tensor

    def __getitem__(self, runs: slice) -> "FactoredGradient":
        """The gradient of some of the runs; where runs share inputs, all inputs are theirs."""
        right = self.right[runs] if len(self.right) == len(self.left) else self.right
        return FactoredGradient(self.left[runs], right, self.responses[runs])

    def dense(self) -> Tensor:
        """The gradient itself, ``(r, o, i)``."""
        runs, rows, _ = self.left.shape
        if isinstance(self.right, SparseBatch):
            gradient = self.left.new_zeros(runs, self.right.images.pixels.shape[1], rows).mT
            self.right.add_product(self.left, 1, gradient)
            return gradient
        return torch.bmm(_merge_runs(self.left, len(self.right)), self.right).view(runs, rows, -1)

    def subtract_from(self, w: Tensor) -> None:
        """Subtract it from weights W, in place; with sparse images, W is stored with its inputs first."""
        if isinstance(self.right, SparseBatch):
            self.right.add_product(self.left, -1, w)
            return
        count = len(self.right)
        _merge_runs(w, count).baddbmm_(_merge_runs(self.left, count), self.right, alpha=-1)


def _merge_runs(rows: Tensor, count: int) -> Tensor:
    """``(r, o, n) -> (s, r / s * o, n)``: rows of the runs that share inputs, as those of one run."""
    return rows.view(count, -1, rows.shape[2])


Gradient = Tensor | FactoredGradient
"""Of a stacked parameter, as a tensor or as its factors."""


def dense_gradient(gradient: Gradient) -> Tensor:
    """A gradient as a tensor."""
    return gradient if isinstance(gradient, Tensor) else gradient.dense()


def lengths(rows: Tensor) -> Tensor:
    """Norm of every row, ``(r, o, i) -> (r, o, 1)``, in one pass over the memory."""
    # torch's stubs leave it untyped
    return cast("Tensor", torch.linalg.vector_norm(rows, dim=2, keepdim=True))  # pyright: ignore[reportUnknownMemberType]


def _dots(kernels: ModuleType, u: Tensor, v: Tensor) -> Tensor:
    """Inner products of rows, ``(r, o, i), (r, o, i) -> (r, o, 1)``."""
    found = u.new_empty(*u.shape[:2], 1)
    kernels.dots(u.numpy(), v.numpy(), found.numpy())
    return found


def _squared_lengths(w: Tensor) -> Tensor:
    """Of rows, ``(r, o, i) -> (r, o, 1)``."""
    if is_inputs_first(w):
        return squared_lengths(w)
    kernels = numba_layers_for(w)
    return _dots(kernels, w, w) if kernels else lengths(w).square_()


def _plain(w: Tensor, g: FactoredGradient, rate: Tensor) -> None:
    g.left.mul_(rate)
    g.subtract_from(w)


def _scaled_rows(w: Tensor, g: FactoredGradient, rate: Tensor) -> None:
    g.left.mul_(_squared_lengths(w).mul_(rate))
    g.subtract_from(w)


def _scaled_columns(w: Tensor, g: FactoredGradient, rate: Tensor) -> None:
    inputs = cast("Tensor", g.right)  # of a classifier: images are inputs of the first layer
    w.baddbmm_(g.left.mul_(rate), inputs * squared_norm(w, COLUMNS), alpha=-1)


def _unit_rows(w: Tensor, g: FactoredGradient, rate: Tensor) -> None:
    # Before it is normalized the step gives a w - r g, whose length is of no importance. A vanishing a may be
    # anything up to a rounding step: then r |c| is one, so r |g| is at least that.
    kernels = numba_layers_for(w)
    along = _dots(kernels, g.left, g.responses) if kernels else inner(g.left, g.responses)
    stretch = along.mul_(rate).add_(1)
    stretch = stretch.abs().clamp_(min=torch.finfo(w.dtype).eps).copysign_(stretch)
    g.left.mul_(rate / stretch)
    g.subtract_from(w)
    if is_inputs_first(w):
        make_unit_(w, stretch)
    elif kernels:
        kernels.make_unit(w.numpy(), stretch.numpy())
    else:
        w.mul_(lengths(w).reciprocal_().copysign_(stretch))


FACTORED_STEPS: dict[tuple[Update, Axes], Callable[[Tensor, FactoredGradient, Tensor], None]] = {
    (PLAIN, ROWS): _plain,
    (PLAIN, COLUMNS): _plain,
    (SCALED, ROWS): _scaled_rows,
    (SCALED, COLUMNS): _scaled_columns,
    (UNIT_NORM, ROWS): _unit_rows,
}
"""Steps in place, ``(w, gradient, rate)`` with rates ``(r, 1, 1)``, by update and what a filter extends over.

They overwrite the gradient's left factor.
"""

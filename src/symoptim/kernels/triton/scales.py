# pyright: basic, reportMissingImports=false, reportIndexIssue=false
# ruff: noqa: N803 - constants of a compiled kernel have names in capital letters
"""From norms to sizes of units, scales and factors of the full metric (:mod:`symoptim.metric.reference`).

All sums are of float64, and each is taken by one program, in an order that never changes. Logarithms of
scales are sums of log-sizes times exponents: products with sparse matrices, which are given by rows as
``starts``, ``columns`` and ``values``.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from symoptim.kernels.triton.common import TYPES
from symoptim.kernels.triton.graph import DeviceConstant
from symoptim.kernels.triton.tiling import unit_programs

BLOCK = 1024  # entries of a program
MORE_WARPS = 16  # of a program that waits more than it computes
WIDE = 4096  # entries that one with more warps reads at once

LOG_ONE, NOTHING, LOG_ZERO = range(3)
"""What is written for a unit whose norms are all zero."""
_LOG_ONE, _NOTHING = tl.constexpr(LOG_ONE), tl.constexpr(NOTHING)


@triton.jit
def _row_sums(starts, columns, values, sizes, rows, mask):
    """Sums of sizes times exponents, of rows of a sparse matrix."""
    begin = tl.load(starts + rows, mask=mask, other=0)
    end = tl.load(starts + rows + 1, mask=mask, other=0)
    total = tl.zeros(rows.shape, tl.float64)
    for step in range(0, tl.max((end - begin).to(tl.int32))):
        inside = begin + step < end
        column = tl.load(columns + begin + step, mask=inside, other=0)
        size = tl.load(sizes + column, mask=inside, other=0.0)
        total += size * tl.load(values + begin + step, mask=inside, other=0.0)
    return total


@triton.jit
def sparse_product(starts, columns, values, positive, negative, out, count, BLOCK: tl.constexpr):
    """Sums of sizes times exponents: ``positive`` sizes where these are positive, ``negative`` elsewhere."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = rows < count
    begin = tl.load(starts + rows, mask=mask, other=0)
    end = tl.load(starts + rows + 1, mask=mask, other=0)
    total = tl.zeros((BLOCK,), tl.float64)
    for step in range(0, tl.max((end - begin).to(tl.int32))):
        inside = begin + step < end
        column = tl.load(columns + begin + step, mask=inside, other=0)
        value = tl.load(values + begin + step, mask=inside, other=0.0)
        up = tl.load(positive + column, mask=inside & (value > 0), other=0.0)
        down = tl.load(negative + column, mask=inside & (value <= 0), other=0.0)
        total += value * (up + down)
    tl.store(out + rows, total, mask=mask)


@triton.jit
def inverse_scales(
    programs, starts, columns, values, sizes, largest, factors,
    TYPE: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One over the scales that are divided out of matrices, and the logarithms of the largest of each.

    A program has ``(matrix, its first and last row, the program's first row, index of its first factor)``.
    """
    program = programs + 5 * tl.program_id(0)
    begin, end, own = tl.load(program + 1), tl.load(program + 2), tl.load(program + 3)
    largest_each = tl.full((TILE,), -float("inf"), tl.float64)
    for block in range(begin, end, TILE):
        rows = block + tl.arange(0, TILE)
        mask = rows < end
        scales = _row_sums(starts, columns, values, sizes, rows, mask)
        largest_each = tl.maximum(largest_each, tl.where(mask, -scales, -float("inf")))
    largest_all = tl.max(largest_each, 0)
    tl.store(largest + tl.load(program), largest_all)
    rows = own + tl.arange(0, BLOCK)
    mask = rows < end
    scales = _row_sums(starts, columns, values, sizes, rows, mask)
    offsets = tl.load(program + 4) + tl.arange(0, BLOCK)
    tl.store(factors + offsets, tl.exp(-scales - largest_all).to(TYPE), mask=mask)


@triton.jit
def _some_units(
    program, first_norm, logs, sources, largest, starts, columns, values, sizes, mean, targets, out,
    ZERO: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Logarithms of root mean squares, as sums of exponentials: products along paths do not fit otherwise."""
    unit = tl.load(program) + tl.arange(0, HEIGHT)
    unit_mask = unit < tl.load(program + 1)
    begin = tl.load(first_norm + unit, mask=unit_mask, other=0)
    end = tl.load(first_norm + unit + 1, mask=unit_mask, other=0)
    top = tl.full((HEIGHT,), -float("inf"), tl.float64)
    total = tl.zeros((HEIGHT,), tl.float64)
    for block in range(0, tl.max((end - begin).to(tl.int32)), WIDTH):
        norm = begin[:, None] + block + tl.arange(0, WIDTH)[None, :]
        mask = norm < end[:, None]
        source = tl.load(sources + 2 * norm, mask=mask, other=0)
        matrix = tl.load(sources + 2 * norm + 1, mask=mask, other=-1)
        log = tl.load(logs + source, mask=mask, other=-float("inf"))
        log += tl.load(largest + matrix, mask=matrix >= 0, other=0.0)
        log -= _row_sums(starts, columns, values, sizes, norm, mask)
        new_top = tl.maximum(top, tl.max(log, 1))
        # The logarithm of zero is nothing to measure others from.
        origin = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(2 * (top - origin)) + tl.sum(tl.exp(2 * (log - origin[:, None])), 1)
        top = new_top
    square = total * tl.load(mean + 2 * unit, mask=unit_mask, other=1.0)
    if ZERO == _LOG_ONE:
        square = tl.where(square == 0, 1.0, square)
    size = tl.where(top == -float("inf"), 0.0, top) + tl.log(square) / 2
    size = size / tl.load(mean + 2 * unit + 1, mask=unit_mask, other=1.0)
    target = tl.load(targets + unit, mask=unit_mask, other=0)
    if ZERO == _NOTHING:
        unit_mask = unit_mask & (total > 0)
    tl.store(out + target, size, mask=unit_mask)


@triton.jit
def unit_sizes(
    programs, first_norm, logs, sources, largest, starts, columns, values, sizes, mean, targets, out,
    ZERO: tl.constexpr,
):  # fmt: skip
    """Log-sizes of units.

    ``first_norm`` has where the norms of each begin; of a norm, ``sources`` has its index in ``logs`` and the
    matrix it is of, if something was divided out of that; the sparse matrix, what is known of its own scale.
    A program has ``(first unit, last unit, width)``.
    """
    program = programs + 3 * tl.program_id(0)
    width = tl.load(program + 2)
    if width == 4:
        _some_units(
            program, first_norm, logs, sources, largest, starts, columns, values, sizes, mean, targets, out,
            ZERO, 256, 4,
        )  # fmt: skip
    elif width == 32:
        _some_units(
            program, first_norm, logs, sources, largest, starts, columns, values, sizes, mean, targets, out,
            ZERO, 32, 32,
        )  # fmt: skip
    elif width == 256:
        _some_units(
            program, first_norm, logs, sources, largest, starts, columns, values, sizes, mean, targets, out,
            ZERO, 4, 256,
        )  # fmt: skip
    else:
        _some_units(
            program, first_norm, logs, sources, largest, starts, columns, values, sizes, mean, targets, out,
            ZERO, 1, 4096,
        )  # fmt: skip


@triton.jit
def matrix_factors(logs, positions, weights, out, count, power, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Factors of rows and columns; ``positions`` has the own one of each, and two whose scales move it."""
    entries = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = entries < count
    own = tl.load(logs + tl.load(positions + 3 * entries, mask=mask, other=0), mask=mask, other=0.0)
    plus = tl.load(logs + tl.load(positions + 3 * entries + 1, mask=mask, other=0), mask=mask, other=0.0)
    minus = tl.load(logs + tl.load(positions + 3 * entries + 2, mask=mask, other=0), mask=mask, other=0.0)
    weight = tl.load(weights + entries, mask=mask, other=0.0)
    factors = tl.exp(power * (own * weight + (plus - minus) / 2))
    tl.store(out + entries, factors.to(TYPE), mask=mask)


class SparseRows(NamedTuple):
    """A sparse matrix by rows: where each begins, columns, values."""

    starts: DeviceConstant
    columns: DeviceConstant
    values: DeviceConstant

    def get(self) -> tuple[Tensor, Tensor, Tensor]:
        """Its parts on the device."""
        return self.starts.get(), self.columns.get(), self.values.get()

    def times(self, vector: Tensor, out: Tensor, negative: Tensor | None = None) -> None:
        """Write the product with a vector, or, of negative values, with another one."""
        count = len(self.starts) - 1
        other = vector if negative is None else negative
        sparse_product[(-(-count // BLOCK),)](*self.get(), vector, other, out, count, BLOCK=BLOCK)


class InverseScales:
    """Writes one over the scales that are divided out of matrices, each set divided by its largest."""

    def __init__(self, lengths: list[int], starts: list[int], scales: SparseRows) -> None:
        """Divide them among programs.

        Args:
            lengths: how many there are of each matrix.
            starts: indices of the first factors.
            scales: logarithms of all scales one matrix after another, as combinations of sizes.
        """
        rows: list[tuple[int, int, int, int, int]] = []
        first = 0
        for matrix, (length, start) in enumerate(zip(lengths, starts, strict=True)):
            last = first + length
            rows += [(matrix, first, last, own, start + own - first) for own in range(first, last, BLOCK)]
            first = last
        programs = torch.tensor(rows, dtype=torch.int64, device="cpu").reshape(-1, 5)
        self.programs, self.scales = DeviceConstant(programs, scales.starts.device), scales

    def launch(self, sizes: Tensor, largest: Tensor, factors: Tensor) -> None:
        """Write the factors, and logarithms of the largest ones by matrix."""
        if len(self.programs):
            inverse_scales[(len(self.programs),)](
                self.programs.get(), *self.scales.get(), sizes, largest, factors,
                TYPE=TYPES[factors.dtype], BLOCK=BLOCK, TILE=WIDE, num_warps=MORE_WARPS,
            )  # fmt: skip


class UnitSizes:
    """Writes root mean squares of the norms of units, which are sorted by how many there are."""

    def __init__(
        self, first_norm: Tensor, sources: Tensor, own: SparseRows, mean: Tensor, targets: Tensor
    ) -> None:
        """Divide the units among programs; see :func:`unit_sizes` and :class:`.tiling.UnitNorms`."""
        device = own.starts.device
        self.own = own
        self.programs = DeviceConstant(unit_programs(first_norm), device)
        self.first_norm, self.sources = DeviceConstant(first_norm, device), DeviceConstant(sources, device)
        self.mean, self.targets = DeviceConstant(mean, device), DeviceConstant(targets, device)

    def launch(self, logs: Tensor, largest: Tensor, sizes: Tensor, out: Tensor, *, zero: int) -> None:
        """Write all of them, from logarithms of norms; ``zero`` says what where all norms are zero."""
        if len(self.programs):
            unit_sizes[(len(self.programs),)](
                self.programs.get(), self.first_norm.get(), logs, self.sources.get(), largest,
                *self.own.get(), sizes, self.mean.get(), self.targets.get(), out,
                ZERO=zero, num_warps=MORE_WARPS,
            )  # fmt: skip


def write_factors(logs: Tensor, positions: Tensor, weights: Tensor, out: Tensor, power: float) -> None:
    """Write factors of rows and columns, to a power; see :func:`matrix_factors`."""
    if len(out):
        matrix_factors[(-(-len(out) // BLOCK),)](
            logs, positions, weights, out, len(out), power, TYPE=TYPES[out.dtype], BLOCK=BLOCK
        )

# pyright: basic, reportMissingImports=false, reportIndexIssue=false
# ruff: noqa: N803 - constants of a compiled kernel have names in capital letters
"""Logarithms of the norms of rows or columns of matrices, whose entries are multiplied by factors.

Sums are of float64, so that no square is too small or too large, and in an order that never changes. A
program has ``(first entry, its factor, entries of a row, rows, columns, index of the first norm, length
class)``, addresses included: it is short, and would wait for a table longer than for the entries.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from symoptim.kernels.descriptor import COLUMNS, OF_COLUMNS, OF_ROWS, WEIGHTS
from symoptim.kernels.triton import tiling
from symoptim.kernels.triton.common import TYPES
from symoptim.kernels.triton.graph import DeviceConstant

WARPS = 4
FIELDS = tl.constexpr(tiling.NORM_FIELDS)


@triton.jit
def _pointer(address, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    # Where a multiple of 16 bytes is promised, entries are read 16 bytes at a time.
    pointer = address.to(tl.pointer_type(TYPE))
    return tl.multiple_of(pointer, 16) if ALIGNED else pointer


@triton.jit
def _even(count, ALIGNED: tl.constexpr):
    # A promise would be forgotten where a number comes from another function.
    return count // 8 * 8 if ALIGNED else count


@triton.jit
def _some_rows(
    weights, factors, inner, count, width, logs,
    TYPE: tl.constexpr, ALIGNED: tl.constexpr, HEIGHT: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.arange(0, HEIGHT), tl.arange(0, LENGTH)
    row_mask, column_mask = rows < count, columns < _even(width, ALIGNED)
    offsets = rows[:, None] * _even(inner, ALIGNED) + columns[None, :]
    pointer = _pointer(weights, TYPE, ALIGNED)
    w = tl.load(pointer + offsets, mask=row_mask[:, None] & column_mask[None, :], other=0.0).to(tl.float64)
    if factors != 0:
        by_column = tl.load(_pointer(factors, TYPE, ALIGNED) + columns, mask=column_mask, other=0.0)
        w = w * by_column.to(tl.float64)[None, :]
    tl.store(logs + rows, tl.log(tl.sum(w * w, 1)) / 2, mask=row_mask)


@triton.jit
def row_norms(programs, logs, TYPE: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr):
    """Norms of rows, or of chunks of them."""
    program = programs + FIELDS * tl.program_id(0)
    weights, factors, length = tl.load(program), tl.load(program + 1), tl.load(program + 6)
    inner, rows = tl.load(program + 2).to(tl.int32), tl.load(program + 3).to(tl.int32)
    width, logs = tl.load(program + 4).to(tl.int32), logs + tl.load(program + 5)
    if length == 64:
        _some_rows(weights, factors, inner, rows, width, logs, TYPE, ALIGNED, TILE // 64, 64)
    elif length == 256:
        _some_rows(weights, factors, inner, rows, width, logs, TYPE, ALIGNED, TILE // 256, 256)
    elif length == 512:
        _some_rows(weights, factors, inner, rows, width, logs, TYPE, ALIGNED, TILE // 512, 512)
    elif length == 1024:
        _some_rows(weights, factors, inner, rows, width, logs, TYPE, ALIGNED, TILE // 1024, 1024)
    else:
        _some_rows(weights, factors, inner, rows, width, logs, TYPE, ALIGNED, 1, TILE)


@triton.jit
def column_norms(
    programs, logs, TYPE: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr, ACROSS: tl.constexpr
):
    """Norms of columns, or of chunks of them."""
    program = programs + FIELDS * tl.program_id(0)
    weights, factors = tl.load(program), tl.load(program + 1)
    inner, count = _even(tl.load(program + 2), ALIGNED), tl.load(program + 3).to(tl.int32)
    columns = tl.arange(0, ACROSS)
    column_mask = columns < _even(tl.load(program + 4).to(tl.int32), ALIGNED)
    total = tl.zeros((TILE // ACROSS, ACROSS), tl.float64)
    for block in range(0, count, TILE // ACROSS):
        rows = block + tl.arange(0, TILE // ACROSS)
        row_mask = rows < count
        offsets = rows[:, None] * inner + columns[None, :]
        pointer = _pointer(weights, TYPE, ALIGNED)
        w = tl.load(pointer + offsets, mask=row_mask[:, None] & column_mask[None, :], other=0.0)
        w = w.to(tl.float64)
        if factors != 0:
            by_row = tl.load(_pointer(factors, TYPE, False) + rows, mask=row_mask, other=0.0)
            w = w * by_row.to(tl.float64)[:, None]
        total += w * w
    tl.store(logs + tl.load(program + 5) + columns, tl.log(tl.sum(total, 0)) / 2, mask=column_mask)


class LogNorms:
    """Writes logarithms of the norms of the matrices of a table, or of chunks of them."""

    def __init__(self, table: Tensor, device: torch.device, dtype: torch.dtype) -> None:
        """Divide the matrices among programs; their addresses must not change."""
        is_aligned = bool((table[:, [WEIGHTS, COLUMNS]] % 16 == 0).all())
        options = {"TYPE": TYPES[dtype], "TILE": tiling.TILE, "num_warps": WARPS}
        across = {"ACROSS": tiling.ACROSS}
        self.launches: list[tuple[Any, DeviceConstant, dict[str, Any]]] = []
        for kind, kernel, more in ((OF_ROWS, row_norms, {}), (OF_COLUMNS, column_norms, across)):
            for even in (False, True):
                programs = tiling.norm_programs(table, dtype.itemsize, kind=kind, even=even)
                if len(programs):
                    constants = {**options, **more, "ALIGNED": even and is_aligned}
                    self.launches.append((kernel, DeviceConstant(programs, device), constants))

    def launch(self, logs: Tensor) -> None:
        """Write all of them; the logarithm of zero is minus infinity."""
        for kernel, programs, constants in self.launches:
            kernel[(len(programs),)](programs.get(), logs, **constants)

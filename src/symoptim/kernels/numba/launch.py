"""Steps and squared norms on the CPU."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symoptim.kernels.dispatch import Numbers
from symoptim.kernels.lay import Lay
from symoptim.kernels.numba.shares import Shares, Stretch, cut
from symoptim.kernels.numba.squares import squares  # pyright: ignore[reportUnknownVariableType]
from symoptim.kernels.numba.step import step  # pyright: ignore[reportUnknownVariableType]
from symoptim.kernels.numbers import RATE
from symoptim.kernels.squares import OF_ROWS
from symoptim.kernels.table import COLUMNS, COUNT, GRADIENT, INNER, KIND, OUTER, PLAIN, rows_of

AT_ONCE = 1 << 16  # entries of a stretch at least: enough to be worth a call
EVEN = 32  # stretches of a thread at least, where there is enough and rows are not longer
APART = (
    2048  # neighboring entries that filters which lie apart are stepped by: long enough to be fetched ahead
)


class CpuLauncher:
    """Steps tensors of one precision."""

    def __init__(self, table: Tensor, dtype: torch.dtype) -> None:
        """Cut the tensors of the table into stretches."""
        self.table: NDArray[np.int64] = table.numpy()
        self.like = torch.empty(0, dtype=dtype, device="cpu").numpy()
        rows = rows_of(table)
        at_once = _at_once(sum(row[OUTER] * row[COUNT] * row[INNER] for row in rows))
        self.shares = Shares(_parts(number, row, at_once) for number, row in enumerate(rows))

    def point_at(self, gradients: Sequence[int]) -> None:
        """Use gradients at these addresses."""
        self.table[:, GRADIENT] = gradients

    def launch(
        self,
        numbers: Numbers,
        rates: Sequence[Tensor | None],
        scaling: tuple[Tensor, Tensor] | None,  # noqa: ARG002 - losses are scaled on accelerators only
    ) -> None:
        """Step all tensors; see :class:`symoptim.kernels.dispatch.Launcher`."""
        values = np.array(numbers)
        for group, rate in enumerate(rates):
            if rate is not None:
                values[group, RATE] = float(rate)
        self.shares.call(cast("Any", step), self.table, values, self.like)


class CpuSquares:
    """Takes squared norms of matrices of one precision."""

    def __init__(self, table: Tensor, dtype: torch.dtype) -> None:
        """Cut the matrices of the table into stretches."""
        self.like = torch.empty(0, dtype=dtype, device="cpu").numpy()
        rows, threads = rows_of(table), torch.get_num_threads()
        total = sum(row[COUNT] * row[INNER] for row in rows)
        largest = total if threads == 1 else total // (4 * threads)
        at_once = _at_once(total)
        self.shares = Shares(_lines(number, row, at_once, largest) for number, row in enumerate(rows))

    def launch(self, table: Tensor, sums: Tensor) -> None:
        """Write all sums, ``(n,)``, float64; addresses in the table may have changed."""
        self.shares.call(cast("Any", squares), table.numpy(), self.like, sums.zero_().numpy())


def _at_once(total: int) -> int:
    """Entries of a stretch, of so many: the longer, the faster memory is read."""
    return max(AT_ONCE, total // (EVEN * torch.get_num_threads()))


def _parts(number: int, about: list[int], at_once: int) -> Iterator[Stretch]:
    """Stretches of a tensor to be stepped."""
    lay = Lay(*about[OUTER : INNER + 1])
    if not lay.length:
        return iter(())
    if about[KIND] == PLAIN and not about[COLUMNS]:
        return cut(number, lay.inner, at_once, each=1)
    if lay.outer == 1:
        return cut(number, lay.filters, at_once // lay.inner, each=lay.length)
    return cut(number, lay.filters, APART // lay.inner, each=lay.length)


def _lines(number: int, about: list[int], at_once: int, largest: int) -> Iterator[Stretch]:
    """Stretches of a matrix whose rows or columns are to be summed."""
    if about[KIND] == OF_ROWS:
        return cut(number, about[COUNT], at_once // about[INNER], each=about[INNER])
    # A part of the columns is pieces of memory that lie apart, which take up to twice as long: all are summed
    # at once, unless that would be more than a thread's fair share.
    return cut(number, about[INNER], max(APART, largest // max(1, about[COUNT])), each=about[COUNT])

"""The launcher of the CPU kernels that step."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symoptim.kernels.backend import Hyperparameters
from symoptim.kernels.descriptor import (
    COLUMNS,
    COUNT,
    GRADIENT,
    INNER,
    KIND,
    OUTER,
    PLAIN,
    RATE,
    table_rows,
)
from symoptim.kernels.memory_layout import FilterLayout
from symoptim.kernels.numba import step
from symoptim.kernels.numba.thread_pool import WIDTH, Chunk, WorkSplit, chunk_size, chunks


class CpuLauncher:
    """Steps tensors of one precision."""

    def __init__(self, table: Tensor, dtype: torch.dtype) -> None:
        """Cut the tensors of the table into chunks."""
        self.table: NDArray[np.int64] = table.numpy()
        self.like = torch.empty(0, dtype=dtype, device="cpu").numpy()
        rows = table_rows(table)
        size = chunk_size(sum(row[OUTER] * row[COUNT] * row[INNER] for row in rows))
        self.work = WorkSplit(_step_chunks(number, row, size) for number, row in enumerate(rows))

    def set_gradient_pointers(self, gradients: Sequence[int]) -> None:
        """Use gradients at these addresses."""
        self.table[:, GRADIENT] = gradients

    def launch(
        self,
        numbers: Hyperparameters,
        rates: Sequence[Tensor | None],
        scaling: tuple[Tensor, Tensor] | None,  # noqa: ARG002 - losses are scaled on accelerators only
    ) -> None:
        """Step all tensors; see :class:`symoptim.kernels.backend.Launcher`."""
        values = np.array(numbers)
        for group, rate in enumerate(rates):
            if rate is not None:
                values[group, RATE] = float(rate)
        self.work.call(cast("Any", step).step, self.table, values, self.like)


def _step_chunks(number: int, row: list[int], size: int) -> Iterator[Chunk]:
    """Chunks of a tensor to be stepped."""
    layout = FilterLayout(*row[OUTER : INNER + 1])
    if not layout.length:
        return iter(())
    if row[KIND] == PLAIN and not row[COLUMNS]:
        return chunks(number, layout.inner, size, entries=1)
    if layout.outer == 1:
        return chunks(number, layout.filters, size // layout.inner, entries=layout.length)
    return chunks(number, layout.filters, WIDTH // layout.inner, entries=layout.length)

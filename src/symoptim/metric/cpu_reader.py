"""Norms of a level on the CPU: all matrices that are read at once, in one pass over memory."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from symoptim.kernels import table
from symoptim.kernels.numba import sizes
from symoptim.kernels.numba.launch import CpuSquares
from symoptim.metric.levels import Level
from symoptim.metric.measure import log_norms
from symoptim.metric.reader import as_reads, table_of
from symoptim.symmetry.tensors import whole_numbers

_kernels: Any = sizes


class LevelReader:
    """Reads the norms of one level, as :func:`.measure.read_norms` does."""

    def __init__(self, level: Level, tensors: Mapping[str, Tensor], dtype: torch.dtype):
        """Find out which readings are sums over rows or columns of matrices.

        Args:
            level: what is to be read.
            tensors: by name.
            dtype: precision of the metric; tensors of another one are read otherwise.
        """
        self.reads, self.left = as_reads(level.readings, tensors, torch.device("cpu"), dtype)
        self.size = sum(reading.own.stop - reading.own.start for reading in level.readings)
        owner = torch.arange(len(self.reads))
        counts = torch.tensor([len(read.own) for read in self.reads], dtype=torch.long)
        others = torch.tensor([len(read.other) for read in self.reads], dtype=torch.long)
        nothing = torch.zeros(0, dtype=torch.long)
        self.into = torch.cat([nothing, *(read.norms for read in self.reads)])
        self.positions = torch.cat([nothing, *(read.other for read in self.reads)])
        self.factors = torch.zeros(len(self.positions), dtype=dtype)
        self.ends = torch.cat([nothing.new_zeros(1), others.cumsum(0)])
        self.largest = torch.zeros(len(self.reads) + 1, dtype=dtype)
        """Of what is divided out of each matrix; the last is of norms that are left to the reference."""
        self.of_norm = torch.full((self.size,), len(self.reads))
        self.of_norm[self.into] = torch.repeat_interleave(owner, counts)
        self.are_norms = torch.equal(self.into, torch.arange(self.size))
        self.sums = torch.zeros(len(self.into), dtype=torch.float64)
        starts, places = whole_numbers(counts.cumsum(0) - counts), whole_numbers(others.cumsum(0) - others)
        self.table = table_of(self.reads, tensors, starts, self.factors, places)
        self.launcher = CpuSquares(self.table, dtype) if self.reads else None

    def __call__(self, weights: Mapping[str, Tensor], log_scales: Tensor) -> Tensor:
        """Logarithms of the norms, in the order of the readings.

        Args:
            weights: by name.
            log_scales: at all positions of the layout.

        Returns:
            As :func:`.measure.read_norms`.
        """
        scales, positions, ends = log_scales.numpy(), self.positions.numpy(), self.ends.numpy()
        _kernels.inverse_scales(scales, positions, ends, self.largest.numpy(), self.factors.numpy())
        self.factors.exp_()
        if self.launcher is not None:
            addresses = [weights[read.reading.tensor].data_ptr() for read in self.reads]
            self.table[:, table.WEIGHTS] = torch.tensor(addresses, device="cpu")
            self.launcher.launch(self.table, self.sums)
        # Norms are of sums of several columns where these move together, pixels of a convolution.
        squared = self.sums
        if not self.are_norms:
            squared = squared.new_zeros(self.size).scatter_add_(0, self.into, squared)
        logs = squared.log().div_(2).to(log_scales.dtype)
        logs += self.largest.index_select(0, self.of_norm)
        for start, reading in self.left:
            found = log_norms(reading, weights[reading.tensor], log_scales)
            logs[start : start + len(found)] = found
        return logs

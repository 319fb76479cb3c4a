"""The full metric for kernels: factors of rows and columns of all tensors, in one piece of memory."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.metric.flat import Matrix, as_matrix
from symoptim.metric.full import FullMetric
from symoptim.metric.levels import Level
from symoptim.metric.reader import LevelReader


class Sides(NamedTuple):
    """Factors of a matrix, by row and by column; to be multiplied twice if only one side has any."""

    rows: Tensor
    columns: Tensor
    twice: bool


class FusedMetric:
    """The factors of :meth:`.FullMetric.factors`, as far as they are those of rows and columns.

    Where both sides have a scale, a constant is moved from one to the other so that their first ones are
    equal: deep in a network one alone would be too large for float32.
    """

    def __init__(self, metric: FullMetric, tensors: Mapping[str, Tensor], power: float) -> None:
        """Lay the factors out.

        Args:
            metric: on the tensors' device, in their precision.
            tensors: all that is read or stepped, by name.
            power: 2 for the step of SGD.
        """
        self.metric, self.power = metric, power
        self.seen = {name: _sight(tensor) for name, tensor in tensors.items()}
        like = metric.layout.exponents.values
        self.readers = {
            id(level): LevelReader(level, tensors, like.device, like.dtype)
            for plan in metric.plans.values()
            for level in plan.levels
        }
        matrices: dict[str, Matrix] = {}
        for name, terms in metric.layout.terms.items():
            tensor = tensors.get(name)
            if terms and tensor is not None and tensor.dtype == like.dtype and tensor.device == like.device:
                matrix = as_matrix(tensor, terms)
                if matrix is not None:
                    matrices[name] = matrix
        self._lay_out(matrices, like)

    def _lay_out(self, matrices: Mapping[str, Matrix], like: Tensor) -> None:
        nowhere = self.metric.layout.positions  # where a zero is put
        positions: list[Tensor] = [torch.zeros(0, dtype=torch.long)]
        owners, signs = [torch.zeros(0, dtype=torch.long)], [torch.zeros(0)]
        weights: list[float] = []
        firsts: list[tuple[int, int]] = []
        for number, matrix in enumerate(matrices.values()):
            both = matrix.rows is not None and matrix.columns is not None
            weights.append(1.0 if both else 0.5)
            rows = torch.full((matrix.height,), nowhere) if matrix.rows is None else matrix.rows
            columns = torch.full((matrix.width,), nowhere) if matrix.columns is None else matrix.columns
            firsts.append((int(rows[0]), int(columns[0])) if both else (nowhere, nowhere))
            positions += [rows, columns]
            owners.append(torch.full((matrix.height + matrix.width,), number))
            signs += [torch.ones(matrix.height), -torch.ones(matrix.width)]
        device, dtype = like.device, like.dtype
        self.positions, self.owners = torch.cat(positions).to(device), torch.cat(owners).to(device)
        self.signs = torch.cat(signs).to(device, dtype)
        self.weights = torch.tensor(weights, device=device, dtype=dtype)[self.owners]
        self.firsts = torch.tensor(firsts, device=device, dtype=torch.long).reshape(-1)
        self.values = torch.zeros(len(self.positions), device=device, dtype=dtype)
        self.sides: dict[str, Sides] = {}
        start = 0
        for name, matrix in matrices.items():
            middle, end = start + matrix.height, start + matrix.height + matrix.width
            twice = matrix.rows is None or matrix.columns is None
            self.sides[name] = Sides(self.values[start:middle], self.values[middle:end], twice)
            start = end

    def sees(self, weights: Mapping[str, Tensor]) -> bool:
        """Whether tensors lie as they did when this was made; they may lie elsewhere."""
        return {name: _sight(tensor) for name, tensor in weights.items()} == self.seen

    def refresh(self, weights: Mapping[str, Tensor]) -> None:
        """Write the factors at these weights into :attr:`sides`."""

        def read(level: Level, tensors: Mapping[str, Tensor], log_scales: Tensor) -> Tensor:
            return self.readers[id(level)](tensors, log_scales)

        log_scales = self.metric.log_scales(weights, read)
        known = torch.cat([log_scales, log_scales.new_zeros(1)])
        row, column = known.index_select(0, self.firsts).view(-1, 2).unbind(1)
        moved = ((column - row) / 2).index_select(0, self.owners).mul_(self.signs)
        logs = torch.addcmul(moved, known.index_select(0, self.positions), self.weights)
        torch.exp(logs.mul_(self.power), out=self.values)


def _sight(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device

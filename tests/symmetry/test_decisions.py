"""When a pass on other values cannot do anything else."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry.decisions import ignores_values
from symoptim.symmetry.record import record


class Function(nn.Module):
    """A function of a table, a counter in a buffer, and an input."""

    def __init__(self, function: Callable[["Function", Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.table = nn.Embedding(5, 3)
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def caught(module: Function, x: Tensor) -> Tensor:
    try:
        return torch.linalg.cholesky(-x)
    except RuntimeError:
        return x


def counted(module: Function, x: Tensor) -> Tensor:
    module.count += 1
    return module.table.weight[module.count] * x


SQUARE, PLACES = torch.eye(3), torch.tensor([[0, 2, 4]])


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda module, x: x @ module.table.weight.t(), SQUARE),
        (lambda module, x: module.table(torch.arange(len(x))) + x, SQUARE),
        (lambda module, x: module.table(x.view(-1)), PLACES),
        (lambda module, x: torch.dropout(x, 0.5, True), SQUARE),
        (lambda module, x: x if bool(torch.arange(3).sum() > 2) else -x, SQUARE),
    ],
)
def test_values_do_not_matter_to_what_is_only_computed(
    function: Callable[[Function, Tensor], Tensor], x: Tensor
) -> None:
    assert ignores_values(record(Function(function), (x,)))


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda module, x: x if bool(x.sum() > 0) else -x, SQUARE),
        (lambda module, x: x[x > 0], SQUARE),
        (lambda module, x: torch.linalg.cholesky(x), SQUARE),
        (caught, SQUARE),
        (lambda module, x: module.table(x + 0), PLACES),
        (lambda module, x: module.table(x.long()), SQUARE),
        (lambda module, x: torch.div(x, x + 1, rounding_mode="floor"), PLACES),
        (counted, SQUARE),
    ],
)
def test_values_may_matter_to_what_looks_at_them_or_refuses_some(
    function: Callable[[Function, Tensor], Tensor], x: Tensor
) -> None:
    assert not ignores_values(record(Function(function), (x,)))

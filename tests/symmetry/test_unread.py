"""Places that only a longer input reads go with those that are read."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry.discover import discover


class Positions(nn.Module):
    """Adds a part of a table to its input, in front of a layer norm."""

    def __init__(self, take: Callable[[Tensor, int], Tensor], *shape: int) -> None:
        super().__init__()
        self.table, self.take = nn.Parameter(torch.randn(shape, dtype=torch.float64)), take
        self.embed = nn.Linear(3, 4, dtype=torch.float64)
        self.norm, self.head = nn.LayerNorm(4, eps=1e-30), nn.Linear(4, 2)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.embed(x) + self.take(self.table, x.shape[1])))


@pytest.mark.parametrize(
    ("take", "shape"),
    [
        (lambda table, length: table[:length], (9, 4)),
        (lambda table, length: table.t()[:length], (4, 9)),
        (lambda table, length: table.unsqueeze(0)[:, :length], (9, 4)),
        (lambda table, length: (table * 2)[:length], (9, 4)),
        (lambda table, length: table.view(3, 3, 4).flatten(0, 1)[:length], (9, 4)),
        (lambda table, length: table[:length, :length].sum(dim=1, keepdim=True) * torch.ones(4), (9, 9)),
        (lambda table, length: nn.functional.embedding(torch.arange(length), table), (9, 4)),
    ],
    ids=["rows", "transposed", "a new axis", "multiplied", "viewed", "two axes", "looked up"],
)
def test_a_longer_input_computes_the_same_after_a_rescaling(
    take: Callable[[Tensor, int], Tensor], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    model = Positions(take, *shape)
    spec = discover(model, (torch.rand(2, 4, 3, dtype=torch.float64),))
    assert len(spec) > 0
    longer = torch.rand(2, 8, 3, dtype=torch.float64)
    before = model(longer)
    spec.rescale_(model, spec.random(seed=1, spread=2.0))
    torch.testing.assert_close(model(longer), before, rtol=1e-9, atol=1e-12)

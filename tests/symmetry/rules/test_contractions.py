"""Products with whichever matrix of a stack."""

import torch
from torch import Tensor, nn
from torch.nn.functional import grouped_mm, relu

from symoptim.symmetry.discover import discover
from tests.support.zoo.animal import Lambda, weight


def experts(self: nn.Module, x: Tensor) -> Tensor:
    """Rows in the order of their experts; how many each has is counted."""
    number = (self.gate(x) > 0).long().sum(dim=-1)
    _, order = number.sort()
    ends = torch.histc(number.float(), bins=3, min=0, max=2).cumsum(dim=0, dtype=torch.int32)
    hidden = relu(grouped_mm(x[order // 1], self.up, offs=ends))
    return grouped_mm(hidden, self.down, offs=ends)


def test_units_of_each_expert_have_a_scale_of_their_own_where_rows_are_grouped() -> None:
    model = Lambda(experts, gate=nn.Linear(8, 2), up=weight(3, 8, 16), down=weight(3, 16, 8))
    # The only type torch traces it in.
    spec = discover(model.bfloat16(), (torch.randn(6, 8, dtype=torch.bfloat16),))
    assert not spec.unknown
    moved = spec.moves(["up", "down"])
    assert int(moved.sum()) == 3 * 16

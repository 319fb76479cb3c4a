"""What the model holds besides its weights."""

import torch
from torch import nn

from symoptim.symmetry.discover import discover


def test_a_buffer_that_is_not_used_stays_what_it_is() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model.register_buffer("spare", torch.ones(5))
    spec = discover(model, (torch.rand(5, 3),))
    assert len(spec) == 4
    assert "spare" not in spec.tensors

"""Attention with fewer keys than queries."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from symmetry.oracle import exact, true_dimension
from symmetry.zoo.animal import Lambda, rand
from symoptim.symmetry.discover import discover


@pytest.mark.parametrize("enable_gqa", [False, True])
def test_heads_that_share_a_key_share_its_scale(enable_gqa: bool) -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        query = self.query(x).unflatten(-1, (2, 2)).transpose(1, 2)
        key, value = self.key(x)[:, None], self.value(x)[:, None]
        mixed = scaled_dot_product_attention(query, key, value, enable_gqa=enable_gqa)
        return self.out(mixed.transpose(1, 2).flatten(-2))

    model = exact(
        Lambda(
            forward,
            query=nn.Linear(3, 4),
            key=nn.Linear(3, 2),
            value=nn.Linear(3, 2),
            out=nn.Linear(4, 3),
        )
    )
    inputs = rand(2, 3, 3)
    spec = discover(model, inputs(torch.Generator().manual_seed(2)))
    assert not spec.unknown
    assert len(spec) == 2 + 2 + 2 == true_dimension(model, inputs)  # scores, biases of keys, values

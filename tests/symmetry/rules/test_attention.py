"""Attention with fewer keys than queries."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from symmetry.oracle import exact, true_dimension
from symmetry.soundness import changes
from symmetry.zoo.animal import Lambda, rand, weight
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


def test_pairs_of_heads_share_the_key_of_their_own_pair() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (-1, 2)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(query, key, value, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))

    model = exact(
        Lambda(
            forward,
            query=nn.Linear(3, 8, bias=False),
            key=nn.Linear(3, 4, bias=False),
            value=nn.Linear(3, 4, bias=False),
            out=nn.Linear(8, 2),
        )
    )
    arguments = (torch.randn(2, 3, 3, dtype=torch.float64),)
    spec = discover(model, arguments)
    assert len(spec) == 2 * 2 + 2 * 2  # scores and values of two heads of two
    assert not changes(spec, model, arguments)


def test_a_learned_mask_cannot_scale() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return scaled_dot_product_attention(self.query(x), self.key(x), x, attn_mask=self.mask)

    query, key = (nn.Linear(3, 2, bias=False) for _ in range(2))
    model = exact(Lambda(forward, query=query, key=key, mask=weight(3, 3)))
    arguments = (torch.randn(2, 3, 3, dtype=torch.float64),)
    spec = discover(model, arguments)
    assert len(spec) == 2
    assert not spec.moves(["mask"]).any()
    assert not changes(spec, model, arguments)

"""Attention with fewer keys than queries."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from symoptim.symmetry.discover import discover
from tests.support.oracle import exact, true_dimension
from tests.support.soundness import changes
from tests.support.zoo.animal import Lambda, rand, weight


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


def by_hand(between: Callable[..., Tensor], **parts: nn.Parameter) -> nn.Module:
    """Attention with one head of two; ``between`` makes scores of queries, keys ``(b, d, n)`` and parts."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        query, key = self.query(x), self.key(x).transpose(-1, -2)
        scores = between(query, key, *(getattr(self, name) for name in parts))
        return self.out(scores.softmax(dim=-1) @ self.value(x))

    linears = {name: nn.Linear(3, 2) for name in ("query", "key", "value")}
    return exact(Lambda(forward, **linears, **parts, out=nn.Linear(2, 3)))


AFTER = torch.ones(3, 3, dtype=torch.bool).triu(1)
SHIFTED: list[Callable[..., Tensor]] = [
    lambda query, key, table: query @ key / 2 + table,
    lambda query, key, table: table - (query @ key) * 0.5,
    lambda query, key, table: torch.baddbmm(table, query, key),
    lambda query, key: torch.where(AFTER, -torch.inf, query @ key),
    lambda query, key: torch.where(AFTER, torch.finfo(key.dtype).min, query @ key),
    lambda query, key: torch.where(~AFTER, query @ key, torch.full([], -torch.inf).to(key)),
]


@pytest.mark.parametrize("number", range(len(SHIFTED)))
def test_a_bias_of_keys_is_dead_whatever_is_added_to_the_scores(number: int) -> None:
    parts = {} if "where" in SHIFTED[number].__code__.co_names else {"table": weight(3, 3)}
    model, inputs = by_hand(SHIFTED[number], **parts), rand(2, 3, 3)
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert not spec.unknown
    assert len(spec) == 2 + 2 + 2 == true_dimension(model, inputs)  # scores, biases of keys, values
    assert not changes(spec, model, arguments)


@pytest.mark.parametrize(
    "between",
    [
        lambda query, key, table: (query @ key + table).relu(),
        lambda query, key, table: (query @ key + table) * table,
        lambda query, key, table: torch.where(AFTER, -1.0, query @ key + table),
        lambda query, key, table: (query @ key + table).transpose(-1, -2),
    ],
)
def test_a_bias_of_keys_is_seen_where_scores_are_not_only_shifted(between: Callable[..., Tensor]) -> None:
    model, inputs = by_hand(between, table=weight(2, 3, 3)), rand(2, 3, 3)
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert not spec.moves(["key.bias"])[~spec.moves(["key.weight"])].any()
    assert not changes(spec, model, arguments)

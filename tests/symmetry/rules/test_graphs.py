"""Layers on graphs as PyTorch Geometric writes them: messages are looked up, and add up where they arrive."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, relu

from symoptim.symmetry.discover import discover
from tests.support.oracle import exact, true_dimension
from tests.support.soundness import changes
from tests.support.zoo.animal import Inputs, rand, together, tokens, weight


def scatter(messages: Tensor, index: Tensor, size: int, reduction: str = "sum") -> Tensor:
    """What arrives at every node."""
    places = index.view(-1, *[1] * (messages.dim() - 1)).expand_as(messages)
    nothing = messages.new_zeros(size, *messages.shape[1:])
    if reduction == "sum":
        return nothing.scatter_add_(0, places, messages)
    if reduction == "mean":
        count = scatter(torch.ones_like(messages[:, :1]), index, size).clamp(min=1)
        return scatter(messages, index, size) / count.expand(size, *messages.shape[1:])
    return nothing.scatter_reduce_(0, places, messages, reduce=reduction, include_self=False)


def softmax(scores: Tensor, index: Tensor, size: int) -> Tensor:
    """Over all edges that arrive at the same node."""
    largest = scatter(scores.detach(), index, size, "amax").index_select(0, index)
    exponentials = (scores - largest).exp()
    return exponentials / (scatter(exponentials, index, size) + 1e-16).index_select(0, index)


def with_loops(edges: Tensor, size: int) -> Tensor:
    """Edges from every node to itself, and no others of these."""
    nodes = torch.arange(size)
    return torch.cat([edges[:, edges[0] != edges[1]], torch.stack([nodes, nodes])], dim=1)


class Convolution(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.bias = nn.Linear(inputs, outputs, bias=False), weight(outputs)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = with_loops(edges, len(x))
        degree = scatter(x.new_ones(source.size(0)), target, len(x)).pow_(-0.5)
        degree.masked_fill_(degree == torch.inf, 0)
        norm = degree[source] * degree[target]
        messages = norm.view(-1, 1) * self.linear(x).index_select(0, source)
        return scatter(messages, target, len(x)) + self.bias


class Attention(nn.Module):
    def __init__(self, inputs: int, heads: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.heads = nn.Linear(inputs, heads * outputs, bias=False), heads
        self.source, self.target = weight(1, heads, outputs), weight(1, heads, outputs)
        self.bias = weight(heads * outputs)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        size = len(x)
        x = self.linear(x).view(size, self.heads, -1)
        source, target = with_loops(edges, size)
        left, right = (x * self.source).sum(dim=-1), (x * self.target).sum(dim=-1)
        scores = leaky_relu(left.index_select(0, source) + right.index_select(0, target), 0.2)
        messages = softmax(scores, target, size).unsqueeze(-1) * x.index_select(0, source)
        return scatter(messages, target, size).flatten(1) + self.bias


class Aggregation(nn.Module):
    def __init__(self, inputs: int, outputs: int, reduction: str) -> None:
        super().__init__()
        self.neighbors, self.own = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)
        self.reduction = reduction

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        received = scatter(x.index_select(0, edges[0]), edges[1], len(x), self.reduction)
        return self.neighbors(received) + self.own(x)


class Network(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.second(relu(self.first(x, edges)), edges)


GRAPH: Inputs = together(rand(5, 3), tokens(5, 2, 8))


@pytest.mark.parametrize(
    ("make", "units"),
    [
        (lambda: Network(Convolution(3, 6), Convolution(6, 2)), 6),
        (lambda: Network(Attention(3, 2, 2), Attention(4, 1, 2)), 4),  # two heads of two
        *(
            (
                lambda reduction=reduction: Network(
                    Aggregation(3, 4, reduction), Aggregation(4, 2, reduction)
                ),
                4,
            )
            for reduction in ("sum", "mean", "amax", "amin")
        ),
    ],
)
def test_units_of_a_layer_on_a_graph_are_free(make: Callable[[], nn.Module], units: int) -> None:
    torch.manual_seed(0)
    model = exact(make())
    arguments = GRAPH(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert not spec.unknown
    assert len(spec) == units == true_dimension(model, GRAPH)
    assert not changes(spec, model, arguments)
    assert not changes(spec, model, GRAPH(torch.Generator().manual_seed(3)))  # other edges


def test_a_product_of_all_that_arrives_is_pinned() -> None:
    model = exact(Network(Aggregation(3, 4, "sum"), Aggregation(4, 2, "prod")))
    spec = discover(model, GRAPH(torch.Generator().manual_seed(2)))
    assert len(spec) == 0

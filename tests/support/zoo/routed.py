"""Networks over time, over graphs and over experts: what goes where is looked up or computed."""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, relu

from tests.support.zoo.animal import Animal, Lambda, places, rand, together, tokens, weight


def relu_rnn() -> nn.Module:
    """Three steps of a recurrent network."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        hidden = torch.zeros(x.shape[1], 4, dtype=x.dtype)
        for now in x:
            hidden = relu(self.enter(now) + self.again(hidden))
        return self.head(hidden)

    return Lambda(forward, enter=nn.Linear(2, 4), again=nn.Linear(4, 4, bias=False), head=nn.Linear(4, 2))


def graph_convolution() -> nn.Module:
    neighbors = torch.tensor([[1.0, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]])

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        x = relu(neighbors.to(x) @ self.first(x))
        return neighbors.to(x) @ self.second(x)

    return Lambda(forward, first=nn.Linear(3, 4), second=nn.Linear(4, 2))


def messages() -> nn.Module:
    """Messages along the edges of a graph are added up where they arrive."""
    source, target = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        message = relu(self.message(torch.cat([x[source], x[target]], dim=-1)))
        received = torch.zeros(len(x), 4, dtype=x.dtype).index_add(0, target, message)
        return self.head(relu(self.own(x) + received))

    return Lambda(forward, message=nn.Linear(6, 4), own=nn.Linear(3, 4), head=nn.Linear(4, 2))


def graph_attention() -> nn.Module:
    """Edges are weighted by a softmax over those that arrive at a node; edges are an input."""

    def forward(self: nn.Module, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        x = self.first(x)
        score = torch.sigmoid(self.score(torch.cat([x[source], x[target]], dim=-1)))
        place = target[:, None].expand(-1, 4)
        return self.head(relu(torch.zeros_like(x).scatter_add(0, place, score * x[source])))

    return Lambda(forward, first=nn.Linear(3, 4), score=nn.Linear(8, 1), head=nn.Linear(4, 2))


def soft_experts() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        gate = self.gate(x).softmax(dim=-1)
        hidden = relu(torch.einsum("bi,eih->beh", x, self.up))
        return torch.einsum("be,beh,eho->bo", gate, hidden, self.down)

    return Lambda(forward, gate=nn.Linear(3, 2), up=weight(2, 3, 4), down=weight(2, 4, 2))


def hard_experts() -> nn.Module:
    """Every example goes to the expert of its largest score, by its number."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        gate = self.gate(x).softmax(dim=-1)
        best = gate.argmax(dim=-1, keepdim=True)
        hidden = relu(x[:, None, :] @ self.up[best[:, 0]])
        return gate.gather(1, best) * (hidden @ self.down[best[:, 0]]).squeeze(1)

    return Lambda(forward, gate=nn.Linear(3, 2), up=weight(2, 3, 4), down=weight(2, 4, 2))


def one_hot_experts() -> nn.Module:
    """All experts look at every example, and a mask of zeros and ones picks."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        gate = self.gate(x).softmax(dim=-1)
        chosen = gate * one_hot(gate.argmax(dim=-1), 2)
        all_of_them = torch.stack([self.first(x), self.second(x)], dim=1)
        return (chosen[:, :, None] * all_of_them).sum(dim=1)

    def expert() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    return Lambda(forward, gate=nn.Linear(3, 2), first=expert(), second=expert())


def written_back() -> nn.Module:
    """Half of the examples are taken out, treated, and written back, by numbers that are an input."""

    def forward(self: nn.Module, x: Tensor, chosen: Tensor) -> Tensor:
        hidden = relu(self.first(x))
        treated = relu(self.expert(hidden[chosen]))
        return self.head(hidden.index_put((chosen,), treated))

    return Lambda(forward, first=nn.Linear(3, 4), expert=nn.Linear(4, 4), head=nn.Linear(4, 2))


ROUTED: dict[str, Animal] = {
    "relu rnn": Animal(relu_rnn, rand(3, 4, 2)),
    "lstm": Animal(lambda: nn.LSTM(2, 3), rand(4, 2, 2), slow=True),
    "gru": Animal(lambda: nn.GRU(2, 3), rand(4, 2, 2), slow=True),
    "graph convolution": Animal(graph_convolution, rand(4, 3)),
    "messages along edges": Animal(messages, rand(4, 3)),
    "graph attention": Animal(graph_attention, together(rand(4, 3), tokens(4, 2, 6)), slow=True),
    "matrix factorization": Animal(
        lambda: Lambda(
            lambda self, users, items: (self.users(users) * self.items(items)).sum(dim=-1),
            users=nn.Embedding(4, 3),
            items=nn.Embedding(5, 3),
        ),
        together(tokens(4, 12), tokens(5, 12)),
    ),
    "soft experts": Animal(soft_experts, rand(8, 3)),
    "hard experts": Animal(hard_experts, rand(8, 3), slow=True),
    "one-hot experts": Animal(one_hot_experts, rand(8, 3), slow=True),
    "examples written back": Animal(written_back, together(rand(6, 3), places(6, 3)), slow=True),
}

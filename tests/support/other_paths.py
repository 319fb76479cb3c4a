"""Networks whose function on other inputs is not seen in the example.

``NETWORKS`` has for each a model, arguments of an example, and arguments of other calls.
"""

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

W = 4


def mlp(width: int = W, hidden: int = 6) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


class Case(NamedTuple):
    """A network with calls, and what is known of it."""

    make: Callable[[], nn.Module]
    example: tuple[Any, ...]
    others: tuple[tuple[Any, ...], ...]
    train: bool = False
    width: int = W
    """Of the output's last axis; 0 if that varies."""
    found: int = 0
    """At least so many generators are found, with a plain network after this one."""
    lies_if_vouched: bool = False
    """Outputs of the other calls change if the user vouches for all paths."""
    may_be_refused: bool = False
    """Whether rescalings may be, because eps is felt too much."""


class Own(nn.Module):
    """A network given by a function of itself and its inputs, with parts by name."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, Tensor) else part)

    def forward(self, *inputs: Any) -> Any:
        return self.run(self, *inputs)


def own(forward: Callable[..., Any], **parts: Callable[[], Any]) -> Callable[[], nn.Module]:
    """A factory of :class:`Own`."""
    return lambda: Own(forward, **{name: part() for name, part in parts.items()})


def linear(inputs: int = W, outputs: int = W) -> Callable[[], nn.Linear]:
    return lambda: nn.Linear(inputs, outputs)


def table(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape)


def x(*shape: int, times: float = 1.0, shift: float = 0.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return times * torch.randn(*shape, generator=generator) + shift


OTHERS = ((x(5, W, seed=1),), (x(5, W, times=30.0, seed=2),), (-x(5, W, seed=3).abs(),), (x(5, W).abs(),))
LONG = ((x(2, 12, W, seed=1),), (x(2, 31, W, seed=2),))
SHORT = (x(2, 5, W),)
FLAT = (x(5, W),)


# Values decide --------------------------------------------------------------------------------------------


def top_one(m: Any, x: Tensor) -> Tensor:
    h = m.norm(x)
    chosen, out = m.router(h).argmax(-1), torch.zeros_like(h)
    for number, expert in enumerate(m.experts):
        if (chosen == number).any():
            out[chosen == number] = expert(h[chosen == number])
    return out


def top_two(m: Any, x: Tensor) -> Tensor:
    h = m.norm(x)
    weights, chosen = m.router(h).softmax(-1).topk(2, dim=-1)
    out = torch.zeros_like(h)
    for number in chosen.unique():
        rows, slot = (chosen == number).nonzero(as_tuple=True)
        out = out.index_add(0, rows, weights[rows, slot, None] * m.experts[int(number)](h[rows]))
    return out


def stacked_experts(m: Any, x: Tensor) -> Tensor:
    h = m.norm(x)
    chosen = m.router(h).argmax(-1)
    out = torch.zeros_like(h)
    for row in range(len(h)):
        e = int(chosen[row])
        out[row] = torch.relu(h[row] @ m.up[e]) @ m.down[e]
    return out


def capacity(m: Any, x: Tensor) -> Tensor:
    h = m.norm(x)
    chosen = m.router(h).argmax(-1)
    return torch.stack(
        [m.experts[int(e)](row) if k < 2 else row for k, (row, e) in enumerate(zip(h, chosen, strict=True))]
    )


def sign_branch(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.b(h.relu() if x.sum() > 0 else h.tanh())


def hidden_branch(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.b(h.relu()) if h.max() < 5 else m.b(h.sigmoid())


def not_a_number(m: Any, x: Tensor) -> Tensor:
    h = m.net(x)
    return m.net(torch.tanh(m.net[0](x))[:, :W]) if x.abs().max() > 20 else h


def early_exit(m: Any, x: Tensor) -> Tensor:
    h = m.one(x).relu()
    return m.exit(h.tanh()) if h.mean() > 3 else m.head(m.two(h).relu())


def until_small(m: Any, x: Tensor) -> Tensor:
    h, steps = x, 0
    while h.abs().max() > 1 and steps < 4:
        h, steps = torch.tanh(m.net(h)) if steps else torch.relu(m.net(h)), steps + 1
    return m.net(h)


def halting(m: Any, x: Tensor) -> Tensor:
    h, total = x, 0.0
    for _ in range(4):
        h = torch.relu(m.cell(h))
        total += float(torch.sigmoid(m.halt(h)).mean())
        if total > 1.2:
            break
    return m.out(h)


def by_item(m: Any, x: Tensor) -> Tensor:
    return m.heads[int(x[0, 0] > 0)](torch.relu(m.a(x)))


def equal_inputs(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.b(torch.relu(h) if not torch.equal(x[0], x[1]) else torch.tanh(h))


def number_of_rows(m: Any, x: Tensor) -> Tensor:
    rows = x[:, 0].gt(1.5).nonzero()[:, 0]
    h = m.a(x)
    return m.b(torch.relu(h)) if len(rows) < 2 else m.b(torch.sin(h))


def scaled_by_largest(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    step = float(h.abs().max()) / 8
    return m.b(torch.relu((h / step).round() * step))


def early_return(m: Any, x: Tensor) -> Tensor:
    return m.refine(m.a(x)) if bool(m.gate(x).mean() > 0) else torch.tanh(m.a(x))


def masked_token(m: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
    h = m.embed(x)
    h = h if mask is None else torch.where(mask[:, None], m.token, h)
    return m.norm(h + m.net(h))


def optional_head(m: Any, x: Tensor, y: Tensor | None = None) -> Tensor:
    h = torch.relu(m.a(x))
    return m.b(h) if y is None else m.b(torch.tanh(h + m.c(y)))


def flag(m: Any, x: Tensor, deep: bool = False) -> Tensor:
    h = torch.relu(m.a(x))
    return m.b(torch.relu(m.c(h)) if deep else h)


def pooled_by_count(m: Any, x: Tensor) -> Tensor:
    kept = x[:, 0] > 0
    h = torch.relu(m.a(x))
    return m.b(h[kept].mean(0) if kept.sum() > 3 else h.sum(0).tanh())


class TwoResults(nn.Module):
    """Returns its hidden units beside the result."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(W, 6), nn.Linear(6, W)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.up(x))
        return self.down(h), h


def returned_aside(m: Any, x: Tensor) -> Tensor:
    y, h = m.two(x)
    return m.other(torch.tanh(h)) if x.abs().max() > 20 else m.last(y)


def optional_aside(m: Any, x: Tensor, more: Tensor | None = None) -> Tensor:
    y, h = m.two(x)
    return m.last(y) if more is None else m.other(torch.tanh(h))


def counted(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.b(torch.relu(h) if (x > 50).nonzero().shape[0] == 0 else torch.tanh(h))


def spread(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.relu(m.a(x))) * (torch.linspace(m.c[0], m.c[1], W) + m.c[0])


# Lengths decide -------------------------------------------------------------------------------------------


def positions(m: Any, x: Tensor) -> Tensor:
    return m.norm(x + m.table[: x.shape[1]])


def split_table(m: Any, x: Tensor) -> Tensor:
    n = x.shape[1]
    return m.out(torch.relu(x + m.table.split(n)[0]))


def unbound_table(m: Any, x: Tensor) -> Tensor:
    rows = m.table.unbind(0)[: x.shape[1]]
    return m.out(torch.relu(x + torch.stack(rows)))


def absolute_table(m: Any, x: Tensor) -> Tensor:
    return m.out(torch.relu(x * m.table.abs()[: x.shape[1]]))


def product_of_tables(m: Any, x: Tensor) -> Tensor:
    return m.out(torch.relu(x * (m.table * m.other)[: x.shape[1]]))


def joined_tables(m: Any, x: Tensor) -> Tensor:
    return m.out(torch.relu(x * torch.cat([m.table, m.other])[: x.shape[1]]))


def factored_table(m: Any, x: Tensor) -> Tensor:
    return m.out(torch.relu(x * (m.left @ m.right)[: x.shape[1]]))


def gathered_table(m: Any, x: Tensor) -> Tensor:
    places = torch.arange(x.shape[1])[:, None].expand(-1, W)
    return m.out(torch.relu(x * m.table.gather(0, places)))


def taken_along(m: Any, x: Tensor) -> Tensor:
    places = torch.arange(x.shape[1])[:, None]
    return m.out(torch.relu(x * torch.take_along_dim(m.table, places, dim=0)))


def relative_logits(m: Any, x: Tensor) -> Tensor:
    """Scores of distances, looked up among those of all distances (ProphetNet)."""
    n = x.shape[1]
    places = (torch.arange(n)[:, None] - torch.arange(n)).abs().clamp(max=15)
    scores = m.relative(m.norm(x)).gather(-1, places.expand(x.shape[0], -1, -1))
    return scores.softmax(-1) @ m.value(x)


def relative_bias(m: Any, x: Tensor) -> Tensor:
    n = x.shape[1]
    places = (torch.arange(n)[:, None] - torch.arange(n)).abs().clamp(max=31)
    return (x @ x.mT + m.table[places].sum(-1)).softmax(-1) @ m.out(x)


def chunks(m: Any, x: Tensor) -> Tensor:
    if x.shape[1] <= 8:
        return m.out(torch.relu(m.a(x)))
    return torch.cat([m.out(torch.tanh(m.a(part))) for part in x.split(8, dim=1)], dim=1)


def first_and_rest(m: Any, x: Tensor) -> Tensor:
    first = torch.relu(m.a(x[:, :6]))
    return m.out(torch.cat([first, torch.sigmoid(m.a(x[:, 6:]))], dim=1))


def carried(m: Any, x: Tensor) -> Tensor:
    """Blocks of eight steps; a state that is zero in the first block decays in the later ones (MiniMax)."""
    state, out = x.new_zeros(x.shape[0], W), list[Tensor]()
    for part in x.split(8, dim=1):
        out.append(m.out(torch.relu(m.a(part))) + (state * m.decay)[:, None])
        state = state * m.decay + part.mean(1)
    return torch.cat(out, dim=1)


def recurrent(m: Any, x: Tensor) -> Tensor:
    state = x.new_zeros(x.shape[0], W)
    for step in x.unbind(1):
        state = torch.relu(m.a(step) + m.b(state))
    return m.out(state)


def per_step_layers(m: Any, x: Tensor) -> Tensor:
    return sum(m.layers[min(k, 7)](step) for k, step in enumerate(x.unbind(1)))  # type: ignore[return-value]


def even_and_odd(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.out(torch.relu(h) if x.shape[1] % 2 else torch.sin(h))


def batch_decides(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.out(torch.relu(h) if x.shape[0] > 3 else torch.sin(h))


# Chance and state -----------------------------------------------------------------------------------------


def dropped(draw: Callable[[Any], bool]) -> Callable[..., Tensor]:
    def run(m: Any, x: Tensor) -> Tensor:
        for layer in m.layers:
            m.calls = getattr(m, "calls", 0) + 1
            h = layer(x)
            x = torch.tanh(h) if draw(m) else torch.relu(h)
        return m.out(x)

    return run


def skipped(m: Any, x: Tensor) -> Tensor:
    for layer in m.layers:
        if not (m.training and float(torch.rand(())) < 0.5):
            x = x + layer(x)
    return m.out(x)


def drop_path(m: Any, x: Tensor) -> Tensor:
    for layer in m.layers:
        keep = torch.empty(x.shape[0], 1).bernoulli_(0.5).to(x.dtype) if m.training else 1.0
        x = x + layer(x) * keep
    return m.out(x)


def shuffled(m: Any, x: Tensor) -> Tensor:
    order = list(range(3))
    random.shuffle(order)
    for number in order:
        x = torch.relu(m.layers[number](x)) if number else torch.tanh(m.layers[number](x))
    return m.out(x)


def span_masked(m: Any, x: Tensor) -> Tensor:
    """Spans that numpy draws are replaced (Wav2Vec2)."""
    h = m.embed(x)
    start = int(np.random.randint(0, 10))
    if m.training and start < 3:
        h = torch.cat([h[:start], m.token.expand(1, W), h[start + 1 :]])
    return m.norm(h + m.net(h))


def warming_up(m: Any, x: Tensor) -> Tensor:
    m.calls = getattr(m, "calls", 0) + 1
    h = m.a(x)
    return m.out(torch.relu(h) if m.calls < 3 else torch.tanh(h))


def remembered(m: Any, x: Tensor) -> Tensor:
    m.memory = getattr(m, "memory", [])
    h = m.a(x)
    out = m.out(torch.relu(h) + sum(m.memory[-2:], torch.zeros(())).tanh())
    m.memory.append(h.detach())
    return out


class DataDependentStart(nn.Module):
    """The first batch decides the gains (ActNorm)."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.gain = nn.Linear(W, W), nn.Parameter(torch.ones(W))
        self.register_buffer("started", torch.zeros((), dtype=torch.bool))
        self.out = nn.Linear(W, W)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        if self.training and not self.started:
            h = torch.tanh(h)
            self.started.fill_(True)
        return self.out(torch.relu(h * self.gain))


class MovingAverage(nn.Module):
    """A buffer that follows the activations, and is subtracted in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.out = nn.Linear(W, W), nn.Linear(W, W)
        self.register_buffer("mean", torch.zeros(W))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.a(x))
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
        return self.out(h - self.mean)


def normalized(bias: bool, affine: bool = True, eps: float = 1e-14) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Linear(W, 6, bias=bias), nn.BatchNorm1d(6, affine=affine, eps=eps), nn.ReLU(), nn.Linear(6, W)
    )


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4, eps=1e-14),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3),
        nn.BatchNorm2d(3),
    )


# Aliases --------------------------------------------------------------------------------------------------


def closure() -> nn.Module:
    a = nn.Linear(W, W)
    model = Own(lambda m, x: m.b(torch.relu(m.a(x))) + x @ a.weight, b=nn.Linear(W, W))
    model.a = a
    return model


def partial() -> nn.Module:
    a = nn.Linear(W, W)
    use = functools.partial(torch.matmul, other=a.weight.detach())
    model = Own(lambda m, x: m.b(torch.relu(m.a(x))) + use(x), b=nn.Linear(W, W))
    model.a = a
    return model


def held(how: Callable[[nn.Linear], Any], use: Callable[[Any], Tensor]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        a = nn.Linear(W, W)
        model = Own(lambda m, x: m.b(torch.relu(m.a(x))) + x @ use(m.kept), b=nn.Linear(W, W))
        model.a, model.kept = a, how(a)
        return model

    return make


def view_buffer() -> nn.Module:
    a = nn.Linear(W, W)
    model = Own(lambda m, x: m.b(torch.relu(m.a(x))) + x @ m.view, b=nn.Linear(W, W))
    model.a = a
    model.register_buffer("view", a.weight.detach().t(), persistent=False)
    return model


# Inputs of other kinds ------------------------------------------------------------------------------------


@dataclass
class Batch:
    """Inputs in a class of one's own."""

    ids: Tensor
    extra: Tensor


class Record(dict[str, Tensor]):
    """Inputs in a kind of dictionary."""


def looked_up(m: Any, batch: Any) -> Tensor:
    ids, extra = (batch.ids, batch.extra) if isinstance(batch, Batch) else (batch["ids"], batch["extra"])
    return m.out(torch.relu(m.table[ids] * extra[:, None]))


def batch(kind: Any, *ids: int) -> tuple[Any, ...]:
    return (kind(ids=torch.tensor(ids), extra=torch.tensor([float(one % 2) for one in ids])),)


# Constants ------------------------------------------------------------------------------------------------


def added(constant: float, times: float) -> Callable[..., Tensor]:
    return lambda m, x: (times * torch.relu(m.a(x)).mean(0) + constant) @ m.b


def divided(constant: float) -> Callable[..., Tensor]:
    def run(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        return m.b(h / (h.pow(2).mean(-1, keepdim=True) + constant).sqrt())

    return run


def embed_stack() -> dict[str, Callable[[], Any]]:
    return {"embed": linear(), "token": table(W), "net": mlp, "norm": lambda: nn.LayerNorm(W)}


def experts(count: int = 8) -> dict[str, Callable[[], Any]]:
    return {
        "norm": lambda: nn.LayerNorm(W),
        "router": lambda: nn.Linear(W, count, bias=False),
        "experts": lambda: nn.ModuleList(mlp() for _ in range(count)),
    }


def layers(count: int = 3) -> dict[str, Callable[[], Any]]:
    return {"layers": lambda: nn.ModuleList(mlp() for _ in range(count)), "out": linear()}


A_B = {"a": linear(), "b": linear()}
A_OUT = {"a": linear(), "out": linear()}
TABLE = {"table": table(32, W), "out": linear()}
SEQUENCES = ((x(2, 12, W, seed=1),), (x(2, 31, W, seed=2),), (x(2, 3, W, seed=3),))
MASK = torch.tensor([True, False, True, False, False])

NETWORKS: Mapping[str, Case] = {
    "experts, one each": Case(
        own(top_one, **experts()), (x(3, W),), ((x(40, W, seed=1),), *OTHERS), found=53
    ),
    "experts, two each": Case(
        own(top_two, **experts()), (x(3, W),), ((x(40, W, seed=1),), *OTHERS), found=53
    ),
    "experts in a stack": Case(
        own(
            stacked_experts,
            up=table(8, W, 6),
            down=table(8, 6, W),
            **{k: v for k, v in experts().items() if k != "experts"},
        ),
        (x(3, W),),
        ((x(40, W, seed=1),), *OTHERS),
        found=5,
    ),
    "experts of limited capacity": Case(
        own(capacity, **experts()), (x(3, W),), ((x(40, W, seed=1),), *OTHERS), found=29, lies_if_vouched=True
    ),
    "sign of the sum": Case(own(sign_branch, **A_B), FLAT, OTHERS, found=9),
    "size of hidden units": Case(own(hidden_branch, **A_B), FLAT, OTHERS, found=9),
    "large inputs": Case(own(not_a_number, net=lambda: mlp(hidden=W)), FLAT, OTHERS, found=9),
    "early exit": Case(
        own(early_exit, one=linear(), two=linear(), exit=linear(), head=linear()),
        FLAT,
        OTHERS,
        found=5,
        lies_if_vouched=True,
    ),
    "until small": Case(own(until_small, net=mlp), FLAT, OTHERS, found=11),
    "halting": Case(own(halting, cell=linear(), halt=linear(W, 1), out=linear()), FLAT, OTHERS, found=5),
    "heads by value": Case(
        own(by_item, a=linear(), heads=lambda: nn.ModuleList([nn.Linear(W, W), nn.Linear(W, W)])),
        FLAT,
        OTHERS,
        found=13,
    ),
    "equal rows": Case(own(equal_inputs, **A_B), FLAT, ((torch.ones(5, W),), *OTHERS), found=9),
    "number of large rows": Case(own(number_of_rows, **A_B), FLAT, OTHERS, found=5),
    "quantized by its range": Case(own(scaled_by_largest, **A_B), FLAT, OTHERS, found=5),
    "a gate that returns": Case(
        own(early_return, a=linear(), refine=mlp, gate=linear()), FLAT, OTHERS, found=5
    ),
    "mask token": Case(
        own(masked_token, **embed_stack()),
        FLAT,
        ((x(5, W, seed=1), MASK), *OTHERS),
        found=11,
        lies_if_vouched=True,
    ),
    "optional input": Case(
        own(optional_head, c=linear(), **A_B),
        FLAT,
        ((x(5, W, seed=1), x(5, W, seed=2)), *OTHERS),
        found=5,
        lies_if_vouched=True,
    ),
    "a flag": Case(
        own(flag, c=linear(), **A_B), FLAT, ((x(5, W, seed=1), True), *OTHERS), found=5, lies_if_vouched=True
    ),
    "rows that are kept": Case(own(pooled_by_count, **A_B), FLAT, OTHERS, found=5),
    "returned aside": Case(
        own(returned_aside, two=TwoResults, other=linear(6), last=linear()), FLAT, OTHERS, found=13
    ),
    "optional, returned aside": Case(
        own(optional_aside, two=TwoResults, other=linear(6), last=linear()),
        FLAT,
        ((x(5, W), x(5, W)),),
        found=5,
        lies_if_vouched=True,
    ),
    "number of very large entries": Case(
        own(counted, **A_B), FLAT, ((x(5, W, times=100.0),), *OTHERS), found=5, lies_if_vouched=True
    ),
    "points between weights": Case(own(spread, c=table(2), **A_B), FLAT, OTHERS, found=13),
    "positions": Case(own(positions, norm=lambda: nn.LayerNorm(W), table=table(32, W)), SHORT, LONG, found=9),
    "split table": Case(own(split_table, **TABLE), SHORT, SEQUENCES, found=9),
    "unbound table": Case(own(unbound_table, **TABLE), SHORT, SEQUENCES, found=9),
    "absolute table": Case(own(absolute_table, **TABLE), SHORT, SEQUENCES, found=13),
    "product of tables": Case(
        own(product_of_tables, other=table(32, W), **TABLE), SHORT, SEQUENCES, found=141
    ),
    "joined tables": Case(own(joined_tables, other=table(32, W), **TABLE), SHORT, SEQUENCES, found=9),
    "factored table": Case(
        own(factored_table, left=table(32, 3), right=table(3, W), out=linear()), SHORT, SEQUENCES, found=16
    ),
    "gathered table": Case(own(gathered_table, **TABLE), SHORT, SEQUENCES, found=13),
    "taken along": Case(own(taken_along, **TABLE), SHORT, SEQUENCES, found=13),
    "relative logits": Case(
        own(relative_logits, norm=lambda: nn.LayerNorm(W), relative=linear(W, 16), value=linear()),
        SHORT,
        SEQUENCES,
        found=13,
    ),
    "relative bias": Case(own(relative_bias, **TABLE), SHORT, SEQUENCES, found=9),
    "chunks": Case(own(chunks, **A_OUT), SHORT, SEQUENCES, found=9),
    "first and rest": Case(own(first_and_rest, **A_OUT), SHORT, SEQUENCES, found=9),
    "carried state": Case(own(carried, decay=table(W), **A_OUT), SHORT, SEQUENCES, found=9),
    "recurrence": Case(own(recurrent, b=linear(), **A_OUT), SHORT, SEQUENCES, found=13),
    "recurrence, one step": Case(own(recurrent, b=linear(), **A_OUT), (x(2, 1, W),), SEQUENCES, found=13),
    "a layer per step": Case(
        own(per_step_layers, layers=lambda: nn.ModuleList(mlp() for _ in range(8))),
        (x(2, 3, W),),
        SEQUENCES,
        found=57,
    ),
    "even and odd": Case(own(even_and_odd, **A_OUT), SHORT, SEQUENCES, found=9),
    "size of the batch": Case(own(batch_decides, **A_OUT), SHORT, ((x(8, 5, W),), (x(1, 5, W),)), found=9),
    "random": Case(own(dropped(lambda _: random.random() < 0.5), **layers()), FLAT, OTHERS * 2, found=23),
    "numpy's random": Case(
        own(dropped(lambda _: bool(np.random.rand() < 0.5)), **layers()), FLAT, OTHERS * 2, found=23
    ),
    "torch's random": Case(
        own(dropped(lambda _: bool(torch.rand(()) < 0.5)), **layers()), FLAT, OTHERS * 2, found=23
    ),
    "counter": Case(own(dropped(lambda m: m.calls % 7 == 0), **layers()), FLAT, OTHERS * 2, found=23),
    "LayerDrop": Case(own(skipped, **layers()), FLAT, OTHERS * 2, train=True, found=23),
    "stochastic depth": Case(own(drop_path, **layers()), FLAT, OTHERS * 2, train=True, found=27),
    "shuffled layers": Case(own(shuffled, **layers()), FLAT, OTHERS * 2, found=5),
    "masked spans": Case(
        own(span_masked, **embed_stack()), FLAT, OTHERS * 4, train=True, found=11, lies_if_vouched=True
    ),
    "warming up": Case(own(warming_up, **A_OUT), FLAT, OTHERS, found=5),
    "memory in a list": Case(own(remembered, **A_OUT), FLAT, OTHERS, found=5),
    "start by the data": Case(DataDependentStart, FLAT, OTHERS, train=True, found=5),
    "moving average": Case(MovingAverage, FLAT, OTHERS, train=True, found=13),
    "bias before batch normalization": Case(normalized(bias=True), FLAT, OTHERS, train=True, found=21),
    "no bias before batch normalization": Case(normalized(bias=False), FLAT, OTHERS, train=True, found=21),
    "batch normalization without gains": Case(
        normalized(bias=True, affine=False), FLAT, OTHERS, train=True, found=15
    ),
    "batch normalization in evaluation": Case(normalized(bias=True), FLAT, OTHERS, found=27),
    "convolutions with statistics": Case(
        convolutions, (x(3, 2, 6, 6),), ((x(4, 2, 8, 8, seed=1),),), train=True, width=0, found=11
    ),
    "closure": Case(closure, FLAT, OTHERS),
    "partial": Case(partial, FLAT, OTHERS, found=5),
    "list of parameters": Case(held(lambda a: [a.weight], lambda kept: kept[0]), FLAT, OTHERS),
    "tuple of parameters": Case(held(lambda a: (a.weight,), lambda kept: kept[0]), FLAT, OTHERS),
    "dictionary of parameters": Case(held(lambda a: {"w": a.weight}, lambda kept: kept["w"]), FLAT, OTHERS),
    "detached attribute": Case(held(lambda a: a.weight.detach(), lambda kept: kept), FLAT, OTHERS, found=5),
    "transposed attribute": Case(
        held(lambda a: [a.weight.detach().t()], lambda kept: kept[0]), FLAT, OTHERS, found=5
    ),
    "part of a parameter": Case(
        held(lambda a: [a.weight.detach()[:, :1]], lambda kept: kept[0]), FLAT, OTHERS, found=5
    ),
    "buffer that is a view": Case(view_buffer, FLAT, OTHERS, found=5),
    "dataclass": Case(
        own(looked_up, **TABLE),
        batch(Batch, 2, 4, 6),
        (batch(Batch, 1, 3, 4), batch(Batch, 9, 7, 4)),
        found=13,
    ),
    "kind of dictionary": Case(
        own(looked_up, **TABLE), batch(Record, 2, 4, 6), (batch(Record, 1, 3, 4),), found=13
    ),
    "constant beside a small mean": Case(
        own(added(1e-4, 1e-7), a=linear(), b=table(W, 2)), FLAT, OTHERS, width=2, found=7
    ),
    "constant beside a mean": Case(
        own(added(1e-5, 1.0), a=linear(), b=table(W, 2)), FLAT, OTHERS, width=2, found=7
    ),
    **{
        f"layer norm, eps {eps}": Case(
            lambda eps=eps: nn.Sequential(nn.Linear(W, 6), nn.LayerNorm(6, eps=eps), nn.Linear(6, W)),
            FLAT,
            OTHERS,
            found=15,
            may_be_refused=eps == 1e-3,
        )
        for eps in (1e-3, 1e-2, 0.1, 0.5)
    },
    **{
        f"written out, eps {eps}": Case(own(divided(eps), **A_B), FLAT, OTHERS, found=9)
        for eps in (1e-3, 0.1)
    },
    "batch normalization, eps .5": Case(normalized(bias=False, eps=0.5), FLAT, OTHERS, train=True, found=15),
    "empty batch": Case(
        lambda: nn.Sequential(nn.Linear(W, W), nn.Tanh(), nn.Linear(W, W)), (torch.zeros(0, W),), OTHERS
    ),
}

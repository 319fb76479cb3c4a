"""Places that only a longer input reads go with those that are read; what nothing is made of cannot move."""

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry.discover import discover as discover_with_doubts
from tests.support.sampling import one_in

# No other path is sought in these networks: they have parameters that are not used.
discover = functools.partial(discover_with_doubts, vouch="*")


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
        (lambda table, length: table.split([length, 9 - length])[0], (9, 4)),
        (lambda table, length: torch.stack(table.unbind(0)[:length]), (9, 4)),
        (lambda table, length: table.gather(0, torch.arange(length)[:, None].expand(length, 4)), (9, 4)),
        (lambda table, length: table.take_along_dim(torch.arange(length)[:, None], dim=0), (9, 4)),
        (lambda table, length: table[torch.arange(length)], (9, 4)),
        (lambda table, length: table.index_select(0, torch.arange(length)), (9, 4)),
        (lambda table, length: table.abs()[:length], (9, 4)),
        (lambda table, length: (table * table.flip(0))[:length], (9, 4)),
        (lambda table, length: torch.cat([table[:3], table[3:].neg()])[:length], (9, 4)),
        (lambda table, length: torch.stack([table, table * 2])[1, :length], (9, 4)),
        (lambda table, length: (table @ table.new_ones(4, 4))[:length], (9, 4)),
        (lambda table, length: table[:, :length].mean(dim=1, keepdim=True).t(), (4, 9)),
        (lambda table, length: table.diagonal()[:length, None] * torch.ones(4), (9, 9)),
        (lambda table, length: table.unfold(0, 2, 1)[:length].sum(-1), (10, 4)),
    ],
    ids=[
        "rows",
        "transposed",
        "a new axis",
        "multiplied",
        "viewed",
        "two axes",
        "looked up",
        "split",
        "unbound",
        "gathered",
        "taken along",
        "indexed",
        "selected",
        "sizes",
        "product",
        "joined",
        "stacked",
        "matrix product",
        "columns",
        "diagonal",
        "windows",
    ],
)
def test_a_longer_input_computes_the_same_after_a_rescaling(
    take: Callable[[Tensor, int], Tensor], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    model = Positions(take, *shape)
    spec = discover(model, (torch.rand(2, 4, 3, dtype=torch.float64),))
    assert len(spec) > 0
    assert not spec.recorded
    longer = torch.rand(2, 8, 3, dtype=torch.float64)
    before = model(longer)
    spec.rescale_(model, spec.random(seed=1, spread=2.0))
    torch.testing.assert_close(model(longer), before, rtol=1e-9, atol=1e-12)


def overwritten(table: Tensor, length: int) -> Tensor:
    table = table.clone()
    table[length:] = 0
    return table


OVER: dict[str, Callable[[Tensor, int], Tensor]] = {
    "cut by a negative padding": lambda t, n: nn.functional.pad(t, (0, 0, 0, n - 9)),
    "padded and cut": lambda t, n: nn.functional.pad(t, (0, 0, 1, n - 10)),
    "a slice put over it": lambda t, n: torch.slice_scatter(t, t.new_zeros(9 - n, 4), 0, n, 9).sum(0)[None],
    "written over in place": lambda t, n: overwritten(t, n).sum(0)[None],
    "in a diagonal of blocks": lambda t, n: torch.block_diag(t[:n], t[n:])[:n, :4],
    "windows that leave a place out": lambda t, n: (
        nn.functional.max_pool1d(t.t()[None, :, :n], 2)[0].t().mean(0)
    ),
    "windows apart": lambda t, n: nn.functional.max_pool1d(t.t()[None], 1, 9 - n)[0].t().sum(0),
    "channels of zeros": lambda t, n: nn.functional.conv1d(filled_up(n), t.t()[:, :, None])[0, :, 0],
    "channels of zeros, transposed": lambda t, n: nn.functional.conv_transpose1d(filled_up(n), t[:, :, None])[
        0, :, 0
    ],
    "beside its signs": lambda t, n: t[:n] * t.sign().mean(),
    "beside a mask": lambda t, n: t[:n] * (t != 0).all(),
    "beside truth values": lambda t, n: t[:n] * t.bool().all(),
    "beside a normalization": lambda t, n: t[:n] * nn.functional.normalize(t, dim=1).mean(),
    "beside places of maxima": lambda t, n: t[:n] * t.topk(2, 1).indices.sum(),
    "beside zeros like it": lambda t, n: t[:n] + torch.zeros_like(t)[:n],
    "beside new zeros": lambda t, n: t[:n] + t.new_zeros(4),
}


def filled_up(length: int) -> Tensor:
    return nn.functional.pad(torch.ones(1, length, 1, dtype=torch.float64), (0, 0, 0, 9 - length))


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", one_in(2, OVER))
def test_what_comes_out_of_no_operation_is_not_free(
    name: str, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if recorded:
        monkeypatch.setattr(torch.export, "export", None)
    torch.manual_seed(0)
    model = Positions(OVER[name], 9, 4)
    spec = discover(model, (torch.rand(2, 5, 3, dtype=torch.float64),))
    assert len(spec) >= 4  # at least those of the layer norm
    for length in (4, 6, 8):
        other = torch.rand(2, length, 3, dtype=torch.float64)
        before = model(other)
        rescaled = spec.rescale_(copy.deepcopy(model), spec.random(seed=1, spread=2.0))
        torch.testing.assert_close(rescaled(other), before, rtol=1e-9, atol=1e-12)


class Lengths(nn.Module):
    """A function of two tables, a layer and the input, between a layer and the last one."""

    def __init__(self, function: Callable[["Lengths", Tensor], Tensor], *, buffer: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(3, 4, bias=False), nn.Linear(4, 2)
        self.p, self.q = nn.Parameter(torch.rand(12, 4)), nn.Parameter(torch.rand(12, 4))
        self.square, self.layer = nn.Parameter(torch.rand(4, 4)), nn.Linear(3, 2 * 12)
        self.register_buffer("decay", torch.rand(4) if buffer else None)
        self.function = function
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self, torch.relu(self.first(x))))


def relative(m: Lengths, h: Tensor) -> Tensor:
    """Two heads, each with a scale of its own for every distance; the distances of this length are read."""
    length = h.shape[1]
    scores = torch.relu(m.layer(h[..., :3])).unflatten(-1, (2, 12))  # B L H buckets
    where = torch.arange(length)[None, :, None, None].expand(len(h), length, 2, 1)
    return h * scores.gather(-1, where).squeeze(-1).repeat_interleave(2, -1)


def recurrent(m: Lengths, h: Tensor) -> Tensor:
    """A state that begins with zeros, and meets a decay in every block of four steps."""
    state, found = torch.zeros(len(h), 4, dtype=h.dtype), list[Tensor]()
    for block in h.split(4, dim=1):
        found.append(block + (state * m.decay)[:, None])
        state = state + block.sum(1)
    return torch.cat(found, dim=1)


def recurrent_product(m: Lengths, h: Tensor) -> Tensor:
    """The same with matrices, as in linear attention."""
    state, found = torch.zeros(len(h), 4, 4, dtype=h.dtype), list[Tensor]()
    for block in h.split(4, dim=1):
        found.append(block + (block * m.decay) @ state)
        state = state + block.transpose(1, 2).detach() @ block
    return torch.cat(found, dim=1)


def shifted(m: Lengths, h: Tensor) -> Tensor:
    """Mixes with the step before, which of the first is zero."""
    return h + nn.functional.pad(h, (0, 0, 1, -1)) * m.decay


FUNCTIONS: dict[str, Callable[[Lengths, Tensor], Tensor]] = {
    "product of two tables": lambda m, h: h * (m.p * m.q)[: h.shape[1]],
    "sum of two tables": lambda m, h: h * (m.p + m.q)[: h.shape[1]],
    "tables joined": lambda m, h: h * torch.cat([m.p, m.q])[: h.shape[1] * 2 : 2],
    "tables joined side by side": lambda m, h: h * torch.cat([m.p, m.q], 1)[: h.shape[1], 2:6],
    "matrix product": lambda m, h: h * (m.p @ m.square)[: h.shape[1]],
    "layer of a table": lambda m, h: h * torch.relu(nn.functional.linear(m.p, m.square))[: h.shape[1]],
    "norms of rows": lambda m, h: h * m.p.norm(dim=1)[: h.shape[1], None],
    "normalized rows": lambda m, h: (
        h * (m.q.sum(1)[:, None] * nn.functional.normalize(m.p, dim=1))[: h.shape[1]]
    ),
    "relative distances": relative,
    "a part of a layer's outputs": lambda m, h: (
        h * m.layer(h[..., :3])[..., : h.shape[1]].sum(-1, keepdim=True)
    ),
    "masks by length": lambda m, h: h * m.p[torch.arange(12) < h.shape[1]],
    "a row of zeros before": lambda m, h: (
        h + torch.cat([m.p.new_zeros(1, 4), m.p])[: h.shape[1]] * m.q[: h.shape[1]]
    ),
    "in turn": lambda m, h: torch.stack([h[:, k] * m.p[k] for k in range(h.shape[1])], 1),
    "state": recurrent,
    "state of matrices": recurrent_product,
    "steps before": shifted,
}


PINNED = ("masks by length", "state of matrices", "state", "steps before", "a row of zeros before")
"""Nothing can be told of these from a single step, or where a size depends on values."""


@pytest.mark.parametrize("short", [1, *(pytest.param(size, marks=pytest.mark.slow) for size in (3, 4))])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", one_in(2, FUNCTIONS))
def test_what_a_short_input_does_not_read_moves_as_a_longer_one_wants(
    name: str, recorded: bool, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if recorded:
        monkeypatch.setattr(torch.export, "export", None)
    torch.manual_seed(0)
    model = Lengths(FUNCTIONS[name], buffer=True)
    spec = discover(model, (torch.rand(2, short, 3, dtype=torch.float64),))
    assert bool(spec.recorded) == recorded or name == "masks by length"
    assert len(spec) > 0 or name in PINNED
    longer = torch.rand(2, 11, 3, dtype=torch.float64)
    before = model(longer)
    spec.rescale_(model, spec.random(seed=1, spread=1.0))
    torch.testing.assert_close(model(longer), before, rtol=1e-8, atol=1e-11)


def relu_network(m: Lengths, h: Tensor) -> Tensor:
    """Recurrent, with a weight that is made anew in every step, and meets zeros in the first."""
    state = torch.zeros(len(h), 4, dtype=h.dtype)
    for step in h.unbind(1):
        state = torch.relu(step + state @ (m.square * 2).t())
    return state


def linear_attention(m: Lengths, h: Tensor) -> Tensor:
    """Queries, decayed, times a state of keys and values; what is in the same block is seen at once."""
    query, key, value = h @ m.p[:4], h @ m.q[:4], h @ m.p[4:8]
    state, found = torch.zeros(len(h), 4, 4, dtype=h.dtype), list[Tensor]()
    for q, k, v in zip(query.split(2, 1), key.split(2, 1), value.split(2, 1), strict=True):
        found.append((q @ k.transpose(1, 2)).tril() @ v + (q * m.decay) @ state)
        state = state + k.transpose(1, 2) @ v
    return torch.cat(found, dim=1)


@pytest.mark.parametrize(
    ("function", "number"),
    [
        pytest.param(relu_network, 4, id="network", marks=pytest.mark.slow),
        pytest.param(linear_attention, 4 + 4 + 4 + 1, id="attention", marks=pytest.mark.slow),
    ],
)
def test_what_meets_a_zero_start_is_free_where_later_steps_meet_more(
    function: Callable[[Lengths, Tensor], Tensor], number: int
) -> None:
    model, longer = Lengths(function, buffer=True), torch.rand(2, 8, 3, dtype=torch.float64)
    for length in (1, 2, 4):  # an example of one step is tried with more
        assert len(discover(model, (longer[:, :length],))) == number
        spec, before = discover(model, (longer[:, :length],)), model(longer)
        spec.rescale_(model, spec.random(seed=1, spread=1.0))
        torch.testing.assert_close(model(longer), before, rtol=1e-8, atol=1e-11)


def test_heads_stay_apart_where_distances_are_tied() -> None:
    """Each has units of its own: what is not read goes with what is read of the same head."""
    model = Lengths(relative)
    inputs = (torch.rand(2, 3, 3, dtype=torch.float64),)
    assert len(discover(model, inputs)) == len(discover(model, (torch.rand(2, 12, 3, dtype=torch.float64),)))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.filterwarnings("ignore:.*no entries:symoptim.errors.PathWarning")
def test_an_empty_batch_tells_nothing(number: int) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    assert len(discover(model, (torch.rand(number, 3),))) == 0


def test_an_expert_without_tokens_stays_as_it_is() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.ModuleList(nn.Linear(3, 4, bias=False) for _ in range(3))
            self.second = nn.ModuleList(nn.Linear(4, 2) for _ in range(3))

        def forward(self, x: Tensor, which: Tensor) -> Tensor:
            out = torch.zeros(len(x), 2, dtype=x.dtype)
            for number, (first, second) in enumerate(zip(self.first, self.second, strict=True)):
                (rows,) = torch.where(which == number)
                out = out.index_add(0, rows, second(torch.relu(first(x[rows]))))
            return out

    model = Experts()
    spec = discover(model, (torch.rand(6, 3), torch.tensor([0, 0, 1, 1, 0, 1])))
    assert not bool(spec.moves(["first.2.weight", "second.2.weight", "second.2.bias"]).any())


def test_weights_of_a_step_that_is_not_taken_stay_as_they_are() -> None:
    """Of a recurrent network what multiplies the state before it, by an input of a single step."""
    model = nn.RNN(3, 4, nonlinearity="relu", bias=False, batch_first=True)
    assert len(discover(model, (torch.rand(2, 1, 3),))) == 0
    whole = nn.Sequential(nn.RNN(3, 4, nonlinearity="relu", bias=False, batch_first=True))
    spec = discover(whole, (torch.rand(2, 1, 3),))
    assert not bool(spec.moves(["0.weight_hh_l0"]).any())


def test_parts_that_are_read_apart_are_all_read() -> None:
    """Three projections in one, by views of their own: nothing is tied."""

    class Fused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fused, self.last = nn.Linear(3, 8, bias=False), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.fused(x)
            return self.last(torch.relu(h.view(-1, 2, 4)[:, 0]) * h.unflatten(-1, (2, 4)).transpose(0, 1)[1])

    spec = discover(Fused(), (torch.rand(5, 3),))
    assert len(spec) == 4 + 4


def test_deep_networks_of_zeros_are_gone_through_once() -> None:
    """Not once for every way through them: there are a billion."""

    class Doubling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.weight = nn.Linear(3, 4), nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            zero = torch.zeros(len(x), 4) * self.weight
            for _ in range(30):
                zero = zero + 2 * zero
            return self.layer(x) + zero

    assert len(discover(Doubling(), (torch.rand(5, 3),))) == 0


def test_inputs_of_other_sizes_that_are_read_in_part_are_no_tensors_of_the_model() -> None:
    class Later(nn.Module):
        """Leaves out the first step, and adds the number of steps."""

        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.down(torch.relu(self.up(x[:, 1:]))) + x.shape[1]

    assert len(discover(Later(), (torch.rand(2, 5, 4),))) == 6

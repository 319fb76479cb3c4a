"""Networks in which one module decides, and another one gets to know of it by the form of tensors alone."""

import array
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.other_paths import FLAT, OTHERS, Case, W, linear, own, x

A_B = {"a": linear(W, 6), "b": linear(6, W)}
FAR = ((x(5, W, times=1e2, shift=2e3),), (x(5, W, times=1e3, shift=-2e3),), (x(7, W, seed=3),), *OTHERS)
ONE_LEFT = ((torch.cat([x(1, W), x(4, W, shift=1e3)]),), *FAR)
MANY = tuple((x(5, W, seed=seed),) for seed in range(60))


class Decides(nn.Module):
    """Returns one thing or another."""

    def __init__(self, decide: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.decide = decide

    def forward(self, x: Tensor) -> Any:
        return self.decide(x)


class Acts(nn.Module):
    """Looks at what it is given, and only then works on tensors."""

    def __init__(self, otherwise: Callable[[Any], bool]) -> None:
        super().__init__()
        self.a, self.b, self.otherwise = nn.Linear(W, 6), nn.Linear(6, W), otherwise

    def forward(self, x: Tensor, seen: Any) -> Tensor:
        return self.b(self.a(x).tanh() if self.otherwise(seen) else self.a(x).relu())


class Both(nn.Module):
    """Hands on what a child returns; to an exception of it, a tensor less."""

    def __init__(self, decide: Callable[[Tensor], Any], otherwise: Callable[[Any], bool]) -> None:
        super().__init__()
        self.decides, self.acts = Decides(decide), Acts(otherwise)

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.acts(x, self.decides(x))
        except ValueError:
            return self.acts(x, None)


class Pruned(nn.Module):
    """Leaves out rows; what follows asks how many are left."""

    def __init__(self) -> None:
        super().__init__()
        self.prune = Decides(lambda x: x[x.norm(dim=-1) < 50])
        self.block = Both(lambda x: x, lambda kept: kept.shape[0] < 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.prune(x)).sum(0)


def both(decide: Callable[[Tensor], Any], otherwise: Callable[[Any], bool]) -> Callable[[], nn.Module]:
    return lambda: Both(decide, otherwise)


def is_far(x: Tensor) -> bool:
    return bool(x.abs().max() > 1000)


def near_alone(x: Tensor) -> Tensor:
    if is_far(x):
        raise ValueError
    return x


def tagged(x: Tensor) -> Tensor:
    y: Any = x * 1.0
    y.far = is_far(x)
    return y


def memories(x: Tensor) -> Tensor:
    return torch.zeros(20)[: 2 + int((x.sum(-1) > 100).sum())]


def packed(m: Any, x: Tensor, lengths: Tensor) -> Tensor:
    steps = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return m.b(m.a(x).tanh() if len(steps.batch_sizes) < 4 else m.a(x).relu())


def by_entries(entries: Callable[[Tensor], int]) -> Callable[[], nn.Module]:
    return own(
        lambda m, x: m.b(m.a(x).tanh() if entries((x - 100).relu().to_sparse()) > 3 else m.a(x).relu()), **A_B
    )


class Schedule(nn.Module):
    """Asks an iterator what to do."""

    def __init__(self, plan: Any) -> None:
        super().__init__()
        self.a, self.b, self.plan = nn.Linear(W, 6), nn.Linear(6, W), plan

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).tanh() if next(self.plan) else self.a(x).relu())


def scheduled(plan: Callable[[], Any]) -> Callable[[], nn.Module]:
    return lambda: Schedule(plan())


class Counts:
    """Counts in an array, for a schedule or as a hook."""

    def __init__(self, counts: Any) -> None:
        self.counts = counts

    def __next__(self) -> bool:
        self.counts[0] += 1
        return self.counts[0] > 40

    def __call__(self, _: nn.Module, __: Any, output: Tensor) -> Tensor:
        return output.tanh() if next(self) else output


def hooked() -> nn.Module:
    net = nn.Sequential(nn.Linear(W, 6), nn.ReLU(), nn.Linear(6, W))
    net[1].register_forward_hook(Counts([0]))
    return net


TOLD: dict[str, Case] = {
    "rows left": Case(Pruned, FLAT, ONE_LEFT, found=5, lies_if_vouched=True),
    "rows left, by the same caller": Case(
        both(lambda x: x[x.norm(dim=-1) < 50], lambda kept: len(kept) < 2),
        FLAT,
        ONE_LEFT,
        found=5,
        lies_if_vouched=True,
    ),
    "kinds of values": Case(
        both(lambda x: (x > 100).unique(), lambda kinds: len(kinds) > 1),
        FLAT,
        ONE_LEFT,
        found=5,
        lies_if_vouched=True,
    ),
    "as many as counted": Case(
        both(memories, lambda some: some.shape[0] > 4), FLAT, FAR, found=5, lies_if_vouched=True
    ),
    "length of a list": Case(
        both(lambda x: [x, x] if is_far(x) else [x], lambda some: len(some) > 1),
        FLAT,
        FAR,
        found=5,
        lies_if_vouched=True,
    ),
    "length of a tuple": Case(
        both(lambda x: (x, x) if is_far(x) else (x,), lambda some: len(some) > 1),
        FLAT,
        FAR,
        found=5,
        lies_if_vouched=True,
    ),
    "names": Case(
        both(lambda x: {"far" if is_far(x) else "near": x}, lambda named: "far" in named),
        FLAT,
        FAR,
        found=5,
        lies_if_vouched=True,
    ),
    "type": Case(
        both(lambda x: x.float() if is_far(x) else x, lambda y: y.dtype == torch.float32),
        FLAT,
        FAR,
        found=5,
        lies_if_vouched=True,
    ),
    "axes": Case(
        both(lambda x: x[None] if is_far(x) else x, lambda y: y.dim() == 3),
        FLAT,
        FAR,
        found=5,
        lies_if_vouched=True,
    ),
    "attribute of a tensor": Case(both(tagged, lambda y: y.far), FLAT, FAR, found=5, lies_if_vouched=True),
    "exception": Case(both(near_alone, lambda y: y is None), FLAT, FAR, found=5, lies_if_vouched=True),
    "entries that are counted": Case(
        by_entries(lambda sparse: sparse._nnz()), FLAT, FAR, found=5, lies_if_vouched=True
    ),
    "entries": Case(
        by_entries(lambda sparse: sparse.coalesce().values().numel()),
        FLAT,
        FAR,
        found=5,
        lies_if_vouched=True,
    ),
    "packed steps": Case(
        own(packed, **A_B),
        (x(2, 5, W), torch.tensor([5, 3])),
        ((x(2, 5, W), torch.tensor([2, 3])), (x(2, 7, W), torch.tensor([2, 1]))),
        found=5,
        lies_if_vouched=True,
    ),
    "cycle": Case(
        scheduled(lambda: itertools.cycle([0] * 45 + [1])), FLAT, MANY, found=5, lies_if_vouched=True
    ),
    "chain": Case(
        scheduled(lambda: itertools.chain([0] * 45, [1] * 500)), FLAT, MANY, found=5, lies_if_vouched=True
    ),
    "iterator of a list": Case(
        scheduled(lambda: iter([0] * 45 + [1] * 500)), FLAT, MANY, found=5, lies_if_vouched=True
    ),
    "count in bytes": Case(
        scheduled(lambda: Counts(bytearray(1))), FLAT, MANY, found=5, lies_if_vouched=True
    ),
    "count in an array": Case(
        scheduled(lambda: Counts(array.array("i", [0]))), FLAT, MANY, found=5, lies_if_vouched=True
    ),
    "count in a hook": Case(hooked, FLAT, MANY, found=9, lies_if_vouched=True),
}

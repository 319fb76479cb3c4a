"""Networks that take another path for a reason that is hard to see: flags, numbers made of sizes, state."""

import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.other_paths import FLAT, LONG, OTHERS, SHORT, Case, W, linear, mlp, own, table, x

MANY = tuple((x(5, W, seed=seed),) for seed in range(40))
FAR = ((x(5, W, times=1e3, shift=2e3),), (x(5, W, times=1e3, shift=-2e3),), *OTHERS)
A_B = {"a": linear(W, 6), "b": linear(6, W)}


# Flags: one module decides, another one acts ---------------------------------------------------------------


class Acts(nn.Module):
    """Does something else if it is given a flag."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(W, 6), nn.Linear(6, W)

    def forward(self, x: Tensor, flag: Any = False) -> Tensor:
        return self.b(self.a(x).tanh() if flag else self.a(x).relu())


class Says(nn.Module):
    """Returns its result, and whether it is large."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(W, 6), nn.Linear(6, W)

    def forward(self, x: Tensor) -> tuple[Tensor, bool]:
        return self.b(self.a(x).relu()), bool(x.sum() > 1000)


class Passes(nn.Module):
    """Gives on what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Acts()

    def forward(self, x: Tensor, flag: Any) -> Tensor:
        return self.inner(x, flag=flag)


def passed_on(flag_of: Callable[[Tensor], Any], inner: type[nn.Module] = Acts) -> Callable[[], nn.Module]:
    return own(lambda m, x: m.inner(x, flag_of(x)), inner=inner)


def told_by_sibling(m: Any, x: Tensor) -> Tensor:
    h, large = m.says(x)
    return m.acts(h, large)


def told_to_itself(m: Any, x: Tensor) -> Tensor:
    h, large = m.says(x)
    return m.b(m.a(h).tanh() if large else m.a(h).relu())


def mode_by_name(m: Any, x: Tensor) -> Tensor:
    return m.inner(x, "" if x.abs().max() < 500 else "deep")


# Sizes ------------------------------------------------------------------------------------------------------


def numbers(change: Callable[[Tensor, int], Tensor]) -> Callable[[], nn.Module]:
    """Hidden units go through something that depends on the number of steps, 5 in the example."""
    return own(lambda m, x: m.b(change(torch.relu(m.a(x)), x.shape[1])), **A_B)


def repeated(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    for _ in range(max(1, x.shape[1] - 4)):
        h = torch.relu(m.c(h))
    return m.b(h)


def grouped(m: Any, x: Tensor) -> Tensor:
    h = torch.relu(m.a(x)).transpose(1, 2)
    return m.b(functional.group_norm(h, 6 if x.shape[1] == 5 else 2, eps=1e-30).transpose(1, 2))


def known_sizes(m: Any, x: Tensor) -> Tensor:
    n = len(list(x.unbind(1)))
    return m.b(torch.tanh(m.a(x)) if n > 12 else torch.relu(m.a(x)))


def by_dictionary(m: Any, x: Tensor) -> Tensor:
    act = {5: torch.relu}.get(int(x.shape[1]), torch.tanh)
    return m.b(act(m.a(x)))


def by_text(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.relu(m.a(x)) if str(x.shape[1]) == "5" else torch.sin(m.a(x)))


def behind_values(m: Any, x: Tensor) -> Tensor:
    """The pass with symbols for sizes ends at the value that Python asks for."""
    h = torch.relu(m.a(x)) * (1.0 if float(x.abs().sum()) >= 0 else 0.5)
    return m.b(torch.tanh(h) if h.shape[1] > 10 else h)


# State, and chance ------------------------------------------------------------------------------------------


class Remembers(nn.Module):
    """Keeps something from call to call."""

    def __init__(self, memory: Any, use: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.memory, self.use = nn.Linear(W, 6), nn.Linear(6, W), memory, use

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.use(self, self.a(x)))


def remembers(memory: Callable[[], Any], use: Callable[[Any, Tensor], Tensor]) -> Callable[[], nn.Module]:
    return lambda: Remembers(memory(), use)


def appended(m: Any, h: Tensor) -> Tensor:
    h = torch.relu(h)
    m.memory.append(h.detach().mean(0))
    return h + sum(m.memory)


def by_name(m: Any, h: Tensor) -> Tensor:
    h = torch.relu(h)
    before = m.memory.get("last", torch.zeros(6))
    m.memory["last"] = h.detach().mean(0)
    return h * (1 + before.tanh())


def in_place(m: Any, h: Tensor) -> Tensor:
    h = torch.relu(h)
    m.memory.mul_(0.5).add_(h.detach().mean(0))
    return h + m.memory.sigmoid()


def replaced(m: Any, h: Tensor) -> Tensor:
    h = torch.relu(h)
    before, m.memory = m.memory, h.detach().mean(0)
    return h * before.tanh()


def asks_the_last(m: Any, h: Tensor) -> Tensor:
    h = torch.relu(h)
    before, m.memory = m.memory, h.detach().mean()
    return h.tanh() if float(before) > 100 else h


def counted(m: Any, h: Tensor) -> Tensor:
    m.memory[0] += 1
    return torch.relu(h) if m.memory[0] < 40 else torch.tanh(h)


def drawn(draw: Callable[[], float], below: float) -> Callable[[], nn.Module]:
    return own(lambda m, x: m.b(torch.tanh(m.a(x)) if draw() < below else torch.relu(m.a(x))), **A_B)


def with_its_own(generator: Callable[[], Any]) -> Callable[[], nn.Module]:
    return own(
        lambda m, x: m.b(torch.tanh(m.a(x)) if m.draw.random() < 0.02 else torch.relu(m.a(x))),
        draw=generator,
        **A_B,
    )


def sampled(m: Any, x: Tensor) -> Tensor:
    places = torch.tensor(random.sample(range(12), 3))
    return m.b(torch.relu(m.a(x) + m.p[places].sum(0)))


# What torch does otherwise ---------------------------------------------------------------------------------


def compiled(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.relu(m.a(x)) if torch.compiler.is_compiling() else torch.tanh(m.a(x)))


def exported(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.relu(m.a(x)) if torch.compiler.is_exporting() else torch.tanh(m.a(x)))


def close(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.tanh(m.a(x)) if torch.allclose(x, x.abs()) else torch.relu(m.a(x)))


def caught(m: Any, x: Tensor) -> Tensor:
    try:
        torch.linalg.cholesky(x.T @ x - 1e-3 * torch.eye(W, dtype=x.dtype))
    except RuntimeError:
        return m.b(torch.tanh(m.a(x)))
    return m.b(torch.relu(m.a(x)))


def every_row(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.stack([torch.relu(m.a(row)) if row[0] > -50 else torch.tanh(m.a(row)) for row in x]))


# Two reasons at once ---------------------------------------------------------------------------------------


def if_long_and_high(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.tanh(m.a(x)) if x.shape[0] > 8 and x.shape[1] > 8 else torch.relu(m.a(x)))


def if_long_and_positive(m: Any, x: Tensor) -> Tensor:
    if x.shape[1] > 8 and bool(x.sum() > 0):
        return m.b(torch.tanh(m.a(x)))
    return m.b(torch.relu(m.a(x)))


def counts_where_positive(m: Any, x: Tensor) -> Tensor:
    m.calls[0] += int(x.sum() > 100)
    return m.b(torch.tanh(m.a(x)) if m.calls[0] > 2 else torch.relu(m.a(x)))


def values_then_size(m: Any, x: Tensor) -> Tensor:
    h = m.a(x * (1.0 if x.sum() > 0 else 2.0))
    return m.b(h.relu() if x.shape[1] < 30 else h.tanh())


def size_where_negative(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    if x.sum() > 0:
        return m.b(h.relu())
    return m.b(h.relu() if x.shape[1] < 30 else h.tanh())


def by_three_sizes(m: Any, x: Tensor) -> Tensor:
    h = torch.relu(m.a(x))
    return m.b({5: h, 12: h.tanh(), 31: h.sin()}.get(x.shape[1], h * 2))


# What Python asks without a question ------------------------------------------------------------------------


def kept_rows(m: Any, x: Tensor) -> Tensor:
    kept = x[x[:, 0] > -20]
    return m.b(torch.tanh(m.a(x)) if len(kept) < len(x) else torch.relu(m.a(x)))


def as_long_as_told(m: Any, x: Tensor) -> Tensor:
    longer = x.repeat_interleave(1 + (x[:, 0] > 20).long(), dim=0)
    return m.b(torch.relu(m.a(x)) if len(longer) == len(x) else torch.sin(m.a(x)))


def learning(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.relu(m.a(x)) if torch.is_grad_enabled() else torch.tanh(m.a(x)))


class Slots:
    """Counts without a dictionary of attributes."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __next__(self) -> int:
        self.count += 1
        return self.count


class Nested:
    """Counts far inside."""

    def __init__(self) -> None:
        self.inner = {"a": [{"b": [{"c": [0]}]}]}

    def __next__(self) -> int:
        counts = self.inner["a"][0]["b"][0]["c"]
        counts[0] += 1
        return counts[0]


class Array:
    """Counts in an array of NumPy."""

    def __init__(self) -> None:
        self.counts = np.zeros(3)

    def __next__(self) -> float:
        self.counts[1] += 1
        return float(self.counts[1])


class Closure:
    """Counts in a variable of a function."""

    def __init__(self) -> None:
        count = 0

        def counted() -> int:
            nonlocal count
            count += 1
            return count

        self.counted = counted

    def __next__(self) -> int:
        return self.counted()


def after_forty(m: Any, h: Tensor) -> Tensor:
    return torch.relu(h) if next(m.memory) < 40 else torch.tanh(h)


HIDDEN: dict[str, Case] = {
    "flag passed on": Case(
        passed_on(lambda x: bool(x.sum() > 1000)), FLAT, FAR, found=5, lies_if_vouched=True
    ),
    "flag passed on twice": Case(
        passed_on(lambda x: bool(x.sum() > 1000), Passes), FLAT, FAR, found=5, lies_if_vouched=True
    ),
    "number passed on": Case(
        passed_on(lambda x: int(x.abs().max()) // 500), FLAT, FAR, found=5, lies_if_vouched=True
    ),
    "None or a tensor": Case(
        passed_on(lambda x: x.numel() if x.sum() > 1000 else None), FLAT, FAR, found=5, lies_if_vouched=True
    ),
    "flag that variations see": Case(passed_on(lambda x: bool(x.sum() > 0)), FLAT, OTHERS, found=9),
    "flag by a sibling": Case(
        own(told_by_sibling, says=Says, acts=Acts), FLAT, FAR, found=5, lies_if_vouched=True
    ),
    "flag by a child": Case(own(told_to_itself, says=Says, **A_B), FLAT, FAR, found=5, lies_if_vouched=True),
    "name passed on": Case(own(mode_by_name, inner=Acts), FLAT, FAR, found=5, lies_if_vouched=True),
    "number of steps added": Case(numbers(lambda h, n: h + (n - 5)), SHORT, LONG, found=9),
    "power of the number of steps": Case(numbers(lambda h, n: h.pow(n - 4)), SHORT, LONG, found=9),
    "clamped at the number of steps": Case(
        numbers(lambda h, n: h.clamp(max=1e9 if n == 5 else n)), SHORT, LONG, found=9
    ),
    "rolled by the number of steps": Case(numbers(lambda h, n: h.roll(n - 5, -1)), SHORT, LONG, found=10),
    "rolled where long": Case(numbers(lambda h, n: h.roll(max(0, n - 10), -1)), SHORT, LONG, found=10),
    "repeated by the number of steps": Case(own(repeated, c=linear(6, 6), **A_B), SHORT, LONG, found=15),
    "groups by the number of steps": Case(own(grouped, **A_B), SHORT, LONG, found=11),
    "list of steps": Case(own(known_sizes, **A_B), SHORT, LONG, found=9),
    "dictionary of sizes": Case(own(by_dictionary, **A_B), SHORT, LONG, found=9),
    "size as text": Case(own(by_text, **A_B), SHORT, LONG, found=9),
    "size behind a value": Case(own(behind_values, **A_B), SHORT, LONG, found=5),
    "a list that fills": Case(remembers(list, appended), FLAT, OTHERS, found=5),
    "a deque": Case(remembers(lambda: deque(maxlen=2), appended), FLAT, OTHERS, found=5),
    # The first call finds nothing in the dictionary and goes another way than later ones: 5 of 9 rescalings
    # are found, all of them if this module is vouched for.
    "a dictionary": Case(remembers(dict, by_name), FLAT, OTHERS, found=5),
    "a tensor in place": Case(remembers(lambda: torch.zeros(6), in_place), FLAT, OTHERS),
    "a tensor replaced": Case(remembers(lambda: torch.ones(6), replaced), FLAT, OTHERS, found=9),
    "the last mean is asked": Case(remembers(lambda: torch.ones(()), asks_the_last), FLAT, FAR),
    "forty calls": Case(remembers(lambda: [0], counted), FLAT, MANY, found=5, lies_if_vouched=True),
    "rare chance of Python": Case(drawn(random.random, 0.02), FLAT, MANY, found=5, lies_if_vouched=True),
    "rare chance of NumPy": Case(
        drawn(lambda: float(np.random.rand()), 0.02), FLAT, MANY, found=5, lies_if_vouched=True
    ),
    "rare chance of torch": Case(drawn(lambda: float(torch.rand(())), 0.02), FLAT, MANY, found=5),
    "a generator of NumPy": Case(with_its_own(lambda: np.random.default_rng(0)), FLAT, MANY, found=5),
    "a generator of Python": Case(
        with_its_own(lambda: random.Random(0)), FLAT, MANY, found=5, lies_if_vouched=True
    ),
    "sampled rows": Case(own(sampled, p=table(12, 6), **A_B), FLAT, MANY, found=5),
    "compiling": Case(own(compiled, **A_B), FLAT, OTHERS, found=9),
    "exporting": Case(own(exported, **A_B), FLAT, OTHERS, found=9),
    "close": Case(own(close, **A_B), FLAT, OTHERS, found=5),
    "caught": Case(own(caught, **A_B), FLAT, OTHERS, found=5),
    "every row": Case(own(every_row, **A_B), FLAT, FAR, found=5, lies_if_vouched=True),
    "long and high": Case(own(if_long_and_high, **A_B), SHORT, ((x(12, 12, W),), *LONG), found=9),
    "long and positive": Case(
        own(if_long_and_positive, **A_B), SHORT, ((x(2, 12, W).abs(),), *LONG), found=9
    ),
    "counts what is positive": Case(
        own(counts_where_positive, calls=lambda: [0], **A_B),
        FLAT,
        (*FAR, *FAR, *FAR, *OTHERS),
        found=5,
        lies_if_vouched=True,
    ),
    "values, then a size": Case(own(values_then_size, **A_B), SHORT, LONG, found=9),
    "a size where negative": Case(
        own(size_where_negative, **A_B), (x(2, 5, W).abs(),), (*LONG, (-x(2, 31, W).abs(),)), found=9
    ),
    "three sizes": Case(own(by_three_sizes, **A_B), SHORT, LONG, found=5, lies_if_vouched=True),
    "number by the number of rows": Case(
        numbers(lambda h, n: h + h.new_full((6,), 0.0 if n < 9 else 1.0)), SHORT, LONG, found=9
    ),
    "padded by the number of rows": Case(
        own(
            lambda m, x: m.b(functional.pad(torch.relu(m.a(x)), (0, 2), value=x.shape[1] - 5.0)),
            a=linear(W, 4),
            b=linear(6, W),
        ),
        SHORT,
        LONG,
        found=9,
    ),
    "kept rows": Case(own(kept_rows, **A_B), FLAT, FAR, found=5, lies_if_vouched=True),
    "as long as told": Case(own(as_long_as_told, **A_B), FLAT, FAR, found=5, lies_if_vouched=True),
    "gradients": Case(own(learning, **A_B), FLAT, OTHERS, found=5),
    "slots": Case(remembers(Slots, after_forty), FLAT, MANY, found=5, lies_if_vouched=True),
    "far inside": Case(remembers(Nested, after_forty), FLAT, MANY, found=5, lies_if_vouched=True),
    "an array": Case(remembers(Array, after_forty), FLAT, MANY, found=5, lies_if_vouched=True),
    "a closure": Case(remembers(Closure, after_forty), FLAT, MANY, found=5, lies_if_vouched=True),
    "itertools": Case(remembers(itertools.count, after_forty), FLAT, MANY, found=5, lies_if_vouched=True),
    "network in network": Case(own(lambda m, x: m.inner(x), inner=mlp), FLAT, OTHERS, found=15),
}

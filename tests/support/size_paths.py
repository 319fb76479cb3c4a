"""Networks that take another path for a size that no example shows: far away, behind another one, or tied."""

import bisect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.other_paths import SHORT, Case, W, linear, own, x

A_B = {"a": linear(W, 6), "b": linear(6, W)}
LENGTHS = tuple((x(2, n, W, seed=n),) for n in (3, 8, 15, 70, 130, 300, 500, 700, 1300))


def by_length(is_long: Callable[[Any], bool]) -> Callable[[], nn.Module]:
    return own(lambda m, x: m.b(m.a(x).tanh() if is_long(x.shape[1]) else m.a(x).relu()), **A_B)


def by_batch(m: Any, x: Tensor) -> Tensor:
    return m.b(m.a(x).tanh() if x.shape[0] > 10 else m.a(x).relu())


def by_bytes(m: Any, x: Tensor) -> Tensor:
    return m.b(m.a(x).tanh() if x.nbytes / 1024 > 16 else m.a(x).relu())


def ladder(m: Any, x: Tensor) -> Tensor:
    h, n = m.a(x), x.shape[1]
    if n <= 10:
        return m.b(h.relu())
    return m.b(functional.leaky_relu(h, 0.1) if n <= 100 else h.tanh())


def bucket(m: Any, x: Tensor) -> Tensor:
    found = next(size for size in (8, 16, 64, 256, 2048) if size >= x.shape[1])
    return m.b(m.a(x).tanh() if found > 64 else m.a(x).relu())


def bisected(m: Any, x: Tensor) -> Tensor:
    kinds = [torch.relu, torch.relu, torch.abs, torch.tanh]
    return m.b(kinds[bisect.bisect([16, 64, 256], x.shape[1])](m.a(x)))


def halved(m: Any, x: Tensor) -> Tensor:
    n, halvings = x.shape[1], 0
    while n > 1:
        n, halvings = n // 2, halvings + 1
    return m.b(m.a(x).tanh() if halvings > 7 else m.a(x).relu())


def windows(m: Any, x: Tensor) -> Tensor:
    n = x.shape[1]
    h = functional.pad(m.a(x), (0, 0, 0, -n % 8)).unflatten(1, (-1, 8))
    h = h + torch.tanh(h.mean(1, keepdim=True)) if h.shape[1] > 4 else h
    return m.b(h.relu().flatten(1, 2)[:, :n])


def in_fours(m: Any, x: Tensor) -> Tensor:
    h = m.a(x).unflatten(1, (-1, 4))
    return m.b(h.tanh() if x.shape[1] > 30 else h.relu())


def ladder_in_fours(m: Any, x: Tensor) -> Tensor:
    return ladder(m, x.unflatten(1, (-1, 4)).flatten(1, 2))


def every_other(m: Any, x: Tensor, y: Tensor) -> Tensor:
    h = m.a(x) + m.a(y[::2])
    return m.b(h.tanh() if x.shape[0] > 20 else h.relu())


def square(m: Any, x: Tensor, y: Tensor) -> Tensor:
    h = m.a(x) + m.a(y.view(len(x), -1, W)).sum(1)
    return m.b(h.tanh() if y.shape[0] > 200 else h.relu())


def pairs(m: Any, x: Tensor, y: Tensor) -> Tensor:
    n = x.shape[0]
    if y.shape[0] != n * (n - 1) // 2:
        raise ValueError("y needs a row for each pair of rows of x")
    h = m.a(x) + m.a(y).mean(0)
    return m.b(h.tanh() if n > 20 else h.relu())


SIZED: dict[str, Case] = {
    "blocks of 64": Case(by_length(lambda n: n // 64 > 5), SHORT, LENGTHS, found=9),
    "started blocks of 64": Case(by_length(lambda n: math.ceil(n / 64) > 5), SHORT, LENGTHS, found=9),
    "more than 1e2": Case(by_length(lambda n: n > 1e2), SHORT, LENGTHS, found=9),
    "more than 400.5": Case(by_length(lambda n: n > 400.5), SHORT, LENGTHS, found=9),
    "half of it": Case(by_length(lambda n: n * 0.5 > 150), SHORT, LENGTHS, found=9),
    "tens above 300": Case(by_length(lambda n: n % 10 == 0 and n >= 300), SHORT, LENGTHS, found=9),
    "bytes": Case(own(by_bytes, **A_B), SHORT, LENGTHS, found=9),
    "ladder": Case(own(ladder, **A_B), SHORT, LENGTHS, found=9),
    "ladder, from above": Case(own(ladder, **A_B), (x(2, 150, W),), LENGTHS, found=9),
    "bucket": Case(own(bucket, **A_B), SHORT, LENGTHS, found=9),
    "bisected": Case(own(bisected, **A_B), SHORT, LENGTHS, found=9),
    "halved": Case(own(halved, **A_B), SHORT, LENGTHS, found=9),
    "many windows": Case(own(windows, **A_B), SHORT, LENGTHS, found=9),
    "in fours": Case(own(in_fours, **A_B), (x(2, 8, W),), ((x(2, 32, W),), (x(2, 300, W),)), found=9),
    "ladder in fours": Case(
        own(ladder_in_fours, **A_B), (x(2, 8, W),), ((x(2, 32, W),), (x(2, 300, W),)), found=9
    ),
    "one row, and more than ten": Case(own(by_batch, **A_B), (x(1, 5, W),), ((x(12, 5, W),),), found=9),
    "one step, and more than 1e2": Case(by_length(lambda n: n > 1e2), (x(2, 1, W),), LENGTHS, found=9),
    "one row of one step": Case(own(ladder, **A_B), (x(1, 1, W),), LENGTHS, found=9),
    "every other row": Case(own(every_other, **A_B), (x(5, W), x(10, W)), ((x(22, W), x(44, W)),), found=9),
    "square": Case(
        own(square, **A_B), (x(3, W), x(9, W)), ((x(15, W), x(225, W)), (x(2, W), x(202, W))), found=9
    ),
    "pairs": Case(
        own(pairs, **A_B), (x(5, W), x(10, W)), ((x(22, W), x(231, W)),), found=5, lies_if_vouched=True
    ),
}
"""By name; where the path changes, all rescalings of hidden units are lost."""

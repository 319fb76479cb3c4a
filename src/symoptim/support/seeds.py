"""Randomness that depends on a seed alone: derived seeds, seeded draws, permutations without a state.

In a permutation, item i has the key ``mix(mix(mix(seed) + epoch) + i G)``; sorting the keys gives the order.
``mix`` is the finalizer of SplitMix64 and G its odd constant (Steele, Lea, Flood, *Fast splittable
pseudorandom number generators*, OOPSLA 2014), in integer arithmetic that wraps around: every device computes
the same bits, and training can be resumed at any epoch without a saved generator.
"""

import hashlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - 2**64
MULTIPLIERS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def derive_seed(*words: int | str) -> int:
    """A seed for a purpose, the same on every machine; other words give an unrelated seed.

    >>> derive_seed(0, "weights") == derive_seed(0, "weights") != derive_seed(1, "weights")
    True
    """
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # 63 bits: it has to fit a signed integer


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Draw from torch's own CPU generator as after ``manual_seed(seed)``; restore its state afterwards."""
    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(state)


def _shift_right(values: Tensor, bits: int) -> Tensor:
    """Shift without the sign: torch shifts signed integers, copies of the sign coming in from the left."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def mix(values: Tensor) -> Tensor:
    """Scramble 64-bit integers, one to one.

    >>> [value % 2**64 for value in mix(torch.tensor([GOLDEN])).tolist()] == [0xE220A8397B1DCDAF]
    True
    """
    values = (values ^ _shift_right(values, 30)) * MULTIPLIERS[0]
    values = (values ^ _shift_right(values, 27)) * MULTIPLIERS[1]
    return values ^ _shift_right(values, 31)


def permutations(seeds: Sequence[int], epoch: int, size: int, device: torch.device | str = "cpu") -> Tensor:
    """One permutation of ``size`` items for every seed, ``(runs, size)``; sorted once for equal seeds.

    >>> order = permutations([1, 2], epoch=1, size=5)
    >>> order.sort(dim=1).values.tolist()
    [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    >>> torch.equal(permutations([2], epoch=1, size=5)[0], order[1])
    True
    """
    rows = {seed: row for row, seed in enumerate(dict.fromkeys(seeds))}
    starts = mix(mix(torch.tensor(list(rows), dtype=torch.int64, device=device)) + epoch)
    items = torch.arange(1, size + 1, dtype=torch.int64, device=device) * GOLDEN
    orders = mix(starts[:, None] + items).argsort(dim=1, stable=True)
    return orders[torch.tensor([rows[seed] for seed in seeds], device=device)]

"""Which programs find the sizes of which units, for :func:`.scales.units`."""

from typing import NamedTuple

import torch
from torch import Tensor

SHAPES = ((256, 4), (32, 32), (4, 256), (1, 4096))
"""Units of a program, and members of each that it looks at together."""

AS_ONE, KEPT, AS_ZERO = range(3)
"""What is written of a unit whose norms are all zero: the logarithm of one, nothing, or of zero."""


def unit_programs(starts: Tensor) -> Tensor:
    """First and last unit, and width, of all programs.

    Args:
        starts: of the members of units, fewest first, and the end.

    Returns:
        A row per program, ``(n, 3)``.

    >>> unit_programs(torch.tensor([0, 1, 3, 8])).tolist()
    [[0, 2, 4], [2, 3, 32]]
    """
    counts = starts.diff()
    found = [torch.empty(0, 3, dtype=torch.int64, device="cpu")]
    first = 0
    for height, width in SHAPES:
        last = int((counts <= width).sum()) if width < SHAPES[-1][1] else len(counts)
        firsts = torch.arange(first, max(first, last), height, device="cpu")
        lasts = (firsts + height).clamp(max=last)
        found.append(torch.stack([firsts, lasts, torch.full_like(firsts, width)], dim=1))
        first = max(first, last)
    return torch.cat(found)


class Numbers(NamedTuple):
    """Logarithms of norms that make up the sizes of units."""

    unit: Tensor
    """Of each, ``(n,)``."""
    found: Tensor
    """Where it is, of which matrix something was divided out (or -1), and its own position, ``(n, 3)``."""
    about: Tensor
    """Of every unit what its sum is multiplied by, and the exponent of its norms, ``(m, 2)``."""
    targets: Tensor
    """Where its size goes, ``(m,)``."""


MOST = SHAPES[-1][1]  # members that a program looks at together


def parted(numbers: Numbers, end: int, nowhere: int) -> tuple[Numbers, Numbers | None]:
    """Cut units with very many numbers into parts, for one program would be long at work on them.

    Args:
        numbers: of all units.
        end: where sums of parts go, and on.
        nowhere: a position of which nothing is known.

    Returns:
        Units whose numbers may be sums of parts; and these parts as units, if there are any.
    """
    counts = torch.bincount(numbers.unit, minlength=len(numbers.targets))
    large = counts[numbers.unit] > MOST
    if not bool(large.any()):
        return numbers, None
    order = numbers.unit[large].argsort(stable=True)
    unit, found = numbers.unit[large][order], numbers.found[large][order]
    counts = torch.bincount(unit)
    within = torch.arange(len(unit), device="cpu") - (counts.cumsum(0) - counts)[unit]
    parts = -(-counts // MOST)
    part = (parts.cumsum(0) - parts)[unit] + within // MOST
    of_part = torch.repeat_interleave(torch.arange(len(parts), device="cpu"), parts)
    places = end + torch.arange(len(of_part), device="cpu")
    ones = torch.ones(len(of_part), 2, dtype=torch.float64, device="cpu")
    sums = torch.stack([places, torch.full_like(places, -1), torch.full_like(places, nowhere)], dim=1)
    rest = numbers._replace(
        unit=torch.cat([numbers.unit[~large], of_part]), found=torch.cat([numbers.found[~large], sums])
    )
    return rest, Numbers(part, found, ones, places)

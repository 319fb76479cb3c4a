"""Which programs find the sizes of which units, for :func:`.sizes.units`."""

import torch
from torch import Tensor

SHAPES = ((256, 4), (32, 32), (4, 256), (1, 4096))
"""Units of a program, and members of each that it looks at together."""


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

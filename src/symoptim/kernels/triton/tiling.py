"""Which programs step which part of which tensor."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from symoptim.kernels.dispatch import ACROSS
from symoptim.kernels.lay import EVEN, Lay
from symoptim.kernels.table import (
    BUFFER,
    INNER,
    KIND,
    OUTER,
    PARAMETER,
    PLAIN,
    ROWS,
    SCALED,
    WEIGHTS,
    rows_of,
)

FIELDS, FOUND = 11, 4  # numbers that a program of :mod:`.columns` is told, and that it finds of a column
SHORT = (64, 128, 256, 512, 1024, 2048)  # up to which rows go into one program, several at once
WIDE = (4096, 8192)  # up to which a row goes into one program, unless it leaves too much of that empty
FULL = 0.7  # part of a program that a wide row has to fill
BLOCKS = {8192: 1024, 24576: 2048, 1 << 62: 4096}  # entries that are read at once of rows up to a length
WARPS, ENTRIES = 8, 256  # of a program at least, and entries that a warp has in hand at most
MUCH = 28_000  # numbers read twice from which a row has all threads there are: four such rows on each of 132
# processors fill a cache of 60 MB. A matrix of 16384 x 16384 takes a fifth less time on the sphere for it.
SHARED = 1 << 16  # entries from which several programs share a row
LINES = 32  # that a program of :mod:`.columns` has at least
SEGMENTS = 32, 1024  # programs that share a column, or a row, at most


class Kind(NamedTuple):
    """What programs that have whole rows to themselves have in common."""

    way: Literal["short", "wide", "long"]
    """Which kernel they run."""
    length: int
    """Entries that it has in hand at once."""
    warps: int
    """How many of 32 threads are at work on them."""
    is_even: bool
    """Whether rows are multiples of eight entries."""


def whole_programs(table: Tensor) -> dict[Kind, Tensor]:
    """Tensor, first row or entry, and length of rows, of programs that have rows to themselves."""
    found: dict[Kind, list[Tensor]] = {}
    for number, row in enumerate(rows_of(table)):
        lay = Lay(*row[OUTER : INNER + 1])
        if is_shared(row) or not lay.inner:
            continue
        count, height, length, kind = lay.filters, 1, 0, kind_of(lay.inner, _read_again(row))
        if row[KIND] == PLAIN and not row[ROWS]:
            count, height, kind = lay.inner, SHORT[-1], Kind("short", SHORT[-1], WARPS, kind.is_even)
        elif kind.way == "short":
            length = next(length for length in SHORT if lay.inner <= length)
            height = SHORT[-1] // length
        starts = torch.arange(0, count, height, device="cpu")
        places = [torch.full_like(starts, number), starts, torch.full_like(starts, length)]
        found.setdefault(kind, []).append(torch.stack(places, 1))
    return {kind: torch.cat(places) for kind, places in found.items()}


def kind_of(inner: int, again: float) -> Kind:
    """The kind of programs for rows of that many entries.

    What programs read a second time is in the cache if not too many are at work at once: the more it is, the
    more threads each has.

    Args:
        inner: entries of a row.
        again: numbers for each entry that are read twice where a row does not fit registers; those of less
            than 32 bits count as half.

    >>> [kind_of(inner, 2)[:3] for inner in (147, 4608, 8192, 12288, 50257)]
    [('short', 2048, 8), ('long', 1024, 8), ('wide', 8192, 32), ('long', 2048, 16), ('long', 4096, 32)]
    """
    is_even = inner % EVEN == 0
    if inner <= SHORT[-1]:
        return Kind("short", SHORT[-1], WARPS, is_even)
    for length in WIDE:
        if FULL * length <= inner <= length:
            return Kind("wide", length, length // ENTRIES, is_even)
    length = next(block for upto, block in BLOCKS.items() if inner <= upto)
    warps = WARPS if inner <= WIDE[-1] else 4 * WARPS if again * inner > MUCH else 2 * WARPS
    return Kind("long", length, warps, is_even)


def _read_again(row: list[int]) -> float:
    """Numbers for each entry that a long row is read twice of: weights alone if it is to be scaled."""
    is_copy = row[WEIGHTS] != row[PARAMETER]
    weights = 1.5 if is_copy else 1.0
    if row[KIND] == PLAIN:
        return 0.0
    if row[KIND] == SCALED:
        return weights
    return weights + (0.5 if is_copy else 1.0) + float(row[BUFFER] != 0)


def is_shared(row: list[int]) -> bool:
    """Whether several programs have to work on a filter of the tensor with that row of the table."""
    return row[OUTER] > 1 or (row[KIND] != PLAIN and row[INNER] > SHARED)


def shared_programs(table: Tensor) -> tuple[Tensor, int]:
    """Fields of all programs of :mod:`.columns`, and how many numbers they leave for each other."""
    found: list[list[int]] = []
    scratch = 0
    for number, row in enumerate(rows_of(table)):
        if not is_shared(row):
            continue
        lay = Lay(*row[OUTER : INNER + 1])
        if lay.outer > 1:
            scratch = _columns(found, number, lay, scratch)
        else:
            for filter_ in range(lay.filters):
                scratch = _long_row(found, number, filter_, lay, scratch)
    return torch.tensor(found, dtype=torch.int64).reshape(-1, FIELDS), scratch


def _columns(found: list[list[int]], number: int, lay: Lay, scratch: int) -> int:
    """Programs of a tensor whose filters lie apart; whole filters to each."""
    width, end = lay.filters * lay.inner, lay.outer * lay.filters * lay.inner
    across = ACROSS // lay.inner * lay.inner
    lines = max(LINES, -(-lay.outer // SEGMENTS[0]))
    segments = -(-lay.outer // lines)
    for base in range(0, width, across):
        columns = min(across, width - base)
        for segment in range(segments):
            first, last = segment * lines, min((segment + 1) * lines, lay.outer)
            found.append(
                [number, base, width, first, last, columns, end, scratch, segment, segments, lay.inner]
            )
        scratch += segments * FOUND * ACROSS
    return scratch


def _long_row(found: list[list[int]], number: int, filter_: int, lay: Lay, scratch: int) -> int:
    """Programs of a row that is cut into lines of one filter."""
    base, total = filter_ * lay.inner, -(-lay.inner // ACROSS)
    lines = max(4 * LINES, -(-total // SEGMENTS[1]))
    segments = -(-total // lines)
    for segment in range(segments):
        first, last = segment * lines, min((segment + 1) * lines, total)
        end = base + lay.inner
        found.append([number, base, ACROSS, first, last, ACROSS, end, scratch, segment, segments, ACROSS])
    return scratch + segments * FOUND * ACROSS

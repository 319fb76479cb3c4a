"""Which programs step which part of which tensor."""

import torch
from torch import Tensor

from symoptim.kernels.dispatch import ACROSS
from symoptim.kernels.lay import Lay
from symoptim.kernels.table import INNER, KIND, OUTER, PLAIN, ROWS, rows_of

EVEN = 8  # entries: 16 bytes or more, which are moved at once
TILE = 2048  # entries that a program of :mod:`.whole` has in hand
LENGTHS = (64, 256, 1024, TILE)  # up to which rows are kept in registers, several at once
STRETCH, LONG = 0, 1  # in the place of a length: entries that are no filters, one long row
SHARED = 1 << 16  # entries from which several programs share a row
LINES = 64  # that a program of :mod:`.apart` has at least
SEGMENTS = 32, 1024  # programs that share a column, or a row, at most


def whole_programs(table: Tensor, *, even: bool) -> Tensor:
    """Tensor, first row or entry, and length class of programs of :func:`.whole.step_whole`.

    Args:
        table: all tensors.
        even: those whose rows are multiples of eight entries, or all others.

    Returns:
        A row per program.
    """
    found: list[Tensor] = []
    for number, row in enumerate(rows_of(table)):
        lay = Lay(*row[OUTER : INNER + 1])
        if is_shared(row) or (lay.inner % EVEN == 0) != even:
            continue
        if row[KIND] == PLAIN and not row[ROWS]:
            starts, length = torch.arange(0, lay.inner, TILE), STRETCH
        else:
            length = next((length for length in LENGTHS if lay.inner <= length), LONG)
            height = 1 if length == LONG else TILE // length
            starts = torch.arange(0, lay.filters if lay.inner else 0, height)
        places = torch.empty(len(starts), 3, dtype=torch.int64)
        places[:, 0], places[:, 1], places[:, 2] = number, starts, length
        found.append(places)
    return torch.cat(found) if found else torch.empty(0, 3, dtype=torch.int64)


def is_shared(row: list[int]) -> bool:
    """Whether several programs have to work on a filter of the tensor with that row of the table."""
    return row[OUTER] > 1 or (row[KIND] != PLAIN and row[INNER] > SHARED)


def shared_programs(table: Tensor) -> tuple[Tensor, int]:
    """Fields of all programs of :mod:`.apart`, and how many numbers they leave for each other."""
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
    return torch.tensor(found, dtype=torch.int64).reshape(-1, 11), scratch


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
        scratch += segments * 4 * ACROSS
    return scratch


def _long_row(found: list[list[int]], number: int, filter_: int, lay: Lay, scratch: int) -> int:
    """Programs of a row that is cut into lines of one filter."""
    base, total = filter_ * lay.inner, -(-lay.inner // ACROSS)
    lines = max(2 * LINES, -(-total // SEGMENTS[1]))
    segments = -(-total // lines)
    for segment in range(segments):
        first, last = segment * lines, min((segment + 1) * lines, total)
        end = base + lay.inner
        found.append([number, base, ACROSS, first, last, ACROSS, end, scratch, segment, segments, ACROSS])
    return scratch + segments * 4 * ACROSS

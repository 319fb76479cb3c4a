"""Which program of a kernel works on what: tables on the host, a row per program. This needs no Triton."""

from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.kernels.backend import ACROSS
from symoptim.kernels.descriptor import (
    BUFFER,
    COLUMNS,
    COUNT,
    INNER,
    KIND,
    OF_ROWS,
    OUT,
    OUTER,
    PARAMETER,
    PLAIN,
    ROWS,
    SCALED,
    WEIGHTS,
    table_rows,
)
from symoptim.kernels.memory_layout import ALIGNED_ENTRIES, FilterLayout

# Steps of rows: :mod:`.rows`.
SHORT = (64, 128, 256, 512, 1024, 2048)  # up to which rows go into one program, several at once
WIDE = (4096, 8192)  # up to which a row goes into one program, unless it leaves too much of that empty
FULL = 0.7  # part of a program that a wide row has to fill
BLOCKS = {8192: 1024, 24576: 2048, 1 << 62: 4096}  # entries that are read at once of rows up to a length
WARPS, ENTRIES = 8, 256  # of a program at least, and entries of a warp at most
# Numbers read twice from which a row has all threads there are: four such rows on each of 132 processors fill
# a cache of 60 MB. A matrix of 16384 x 16384 takes a fifth less time on the sphere for it.
REREAD = 28_000

# Steps of columns and very long rows: :mod:`.columns`.
SPLIT_LENGTH = 1 << 16  # entries from which a row is split among programs
SPLIT_FIELDS, PRODUCTS = 11, 4  # numbers that describe a program, and that it writes of a column
LINES = 32  # of a program at least
SEGMENTS = 32, 1024  # programs that share a column, or a row, at most

# Norms: :mod:`.norms`.
TILE = 2048  # entries of a program
LENGTHS = (64, 256, 512, 1024, TILE)  # up to which rows are read together, as many as fit
CHUNK_LINES = 128  # rows in a chunk of a column, at least
CHUNKS = 256  # of a column, at most
NORM_FIELDS = 7  # of a program

# Sizes of units: :mod:`.scales`.
UNIT_TILES = ((256, 4), (32, 32), (4, 256), (1, 4096))
"""Units of a program, and norms of each that it reads at once."""
MOST = UNIT_TILES[-1][1]  # norms that a program reads at once


class RowTiling(NamedTuple):
    """What programs with rows of their own have in common."""

    in_registers: bool
    """Whether a row is read once."""
    length: int
    """Entries that a program reads at once."""
    warps: int
    """How many groups of 32 threads a program has."""
    is_even: bool
    """Whether rows are multiples of eight entries."""


def row_programs(table: Tensor) -> dict[RowTiling, Tensor]:
    """Tensor, first row or entry, and length of rows, of programs of :mod:`.rows`."""
    programs: dict[RowTiling, list[Tensor]] = {}
    for number, row in enumerate(table_rows(table)):
        layout = FilterLayout(*row[OUTER : INNER + 1])
        if is_split(row) or not layout.inner:
            continue
        count, height, length, tiling = layout.filters, 1, 0, row_tiling(layout.inner, _reread(row))
        if row[KIND] == PLAIN and not row[ROWS]:
            count, height, tiling = layout.inner, SHORT[-1], RowTiling(True, SHORT[-1], WARPS, tiling.is_even)
        elif layout.inner <= SHORT[-1]:
            length = next(length for length in SHORT if layout.inner <= length)
            height = SHORT[-1] // length
        starts = torch.arange(0, count, height, device="cpu")
        columns = [torch.full_like(starts, number), starts, torch.full_like(starts, length)]
        programs.setdefault(tiling, []).append(torch.stack(columns, 1))
    return {tiling: torch.cat(some) for tiling, some in programs.items()}


def row_tiling(inner: int, reread: float) -> RowTiling:
    """The tiling for rows of that many entries.

    What programs read a second time is in the cache if not too many run at once: the more it is, the more
    threads each has.

    Args:
        inner: entries of a row.
        reread: numbers for each entry that are read twice where a row does not fit registers; those of less
            than 32 bits count as half.

    >>> [row_tiling(inner, 2)[:3] for inner in (147, 4608, 8192, 12288, 50257)]
    [(True, 2048, 8), (False, 1024, 8), (True, 8192, 32), (False, 2048, 16), (False, 4096, 32)]
    """
    is_even = inner % ALIGNED_ENTRIES == 0
    if inner <= SHORT[-1]:
        return RowTiling(True, SHORT[-1], WARPS, is_even)
    for length in WIDE:
        if FULL * length <= inner <= length:
            return RowTiling(True, length, length // ENTRIES, is_even)
    length = next(block for limit, block in BLOCKS.items() if inner <= limit)
    warps = WARPS if inner <= WIDE[-1] else 4 * WARPS if reread * inner > REREAD else 2 * WARPS
    return RowTiling(False, length, warps, is_even)


def _reread(row: list[int]) -> float:
    """Numbers for each entry that a long row is read twice of: weights alone if it is to be scaled."""
    is_copy = row[WEIGHTS] != row[PARAMETER]
    weights = 1.5 if is_copy else 1.0
    if row[KIND] == PLAIN:
        return 0.0
    if row[KIND] == SCALED:
        return weights
    return weights + (0.5 if is_copy else 1.0) + float(row[BUFFER] != 0)


def is_split(row: list[int]) -> bool:
    """Whether filters of the tensor with that row of the table are split among programs."""
    return row[OUTER] > 1 or (row[KIND] != PLAIN and row[INNER] > SPLIT_LENGTH)


def split_programs(table: Tensor) -> tuple[Tensor, int]:
    """Programs of :mod:`.columns`, and how many numbers they write for each other."""
    programs: list[list[int]] = []
    scratch = 0
    for number, row in enumerate(table_rows(table)):
        if not is_split(row):
            continue
        layout = FilterLayout(*row[OUTER : INNER + 1])
        least, most = (LINES, SEGMENTS[0]) if layout.outer > 1 else (4 * LINES, SEGMENTS[1])
        for base, stride, columns, end, inner in _blocks(layout):
            total = -(-(end - base) // stride)
            lines = max(least, -(-total // most))
            segments = -(-total // lines)
            for segment in range(segments):
                first, last = segment * lines, min((segment + 1) * lines, total)
                fields = number, base, stride, first, last, columns, end, scratch, segment, segments, inner
                programs.append([*fields])
            scratch += segments * PRODUCTS * ACROSS
    return torch.tensor(programs, dtype=torch.int64).reshape(-1, SPLIT_FIELDS), scratch


def _blocks(layout: FilterLayout) -> list[tuple[int, int, int, int, int]]:
    """Filters that programs share: first entry, distance of lines, columns, end, neighbors of one filter."""
    if layout.outer == 1:  # a very long row is cut into lines
        ends = range(layout.inner, layout.filters * layout.inner + 1, layout.inner)
        return [(end - layout.inner, ACROSS, ACROSS, end, ACROSS) for end in ends]
    width, across = layout.filters * layout.inner, ACROSS // layout.inner * layout.inner  # whole filters
    end = layout.outer * width
    return [(base, width, min(across, width - base), end, layout.inner) for base in range(0, width, across)]


def norm_chunks(row: list[int]) -> int:
    """In how many chunks a kernel takes each norm of the matrix with that row of the table."""
    if row[KIND] == OF_ROWS:
        return -(-row[INNER] // _chunk_length(row[INNER]))
    return -(-row[COUNT] // _chunk_lines(row[COUNT]))


def _chunk_length(inner: int) -> int:
    """Entries in a chunk of a row; the last chunk may be shorter."""
    chunks = -(-inner // TILE)
    return -(-inner // (chunks * ALIGNED_ENTRIES)) * ALIGNED_ENTRIES


def _chunk_lines(count: int) -> int:
    """Entries in a chunk of a column."""
    return max(CHUNK_LINES, -(-count // CHUNKS))


def norm_programs(table: Tensor, size: int, *, kind: int, even: bool) -> Tensor:
    """Programs of :mod:`.norms`.

    Norms of rows are in the order of the rows, the chunks of a row side by side; of columns all first chunks
    come first.

    Args:
        table: all matrices.
        size: bytes of an entry.
        kind: norms of rows or of columns.
        even: of matrices whose rows are multiples of eight entries, or of all others.

    Returns:
        Addresses of the first entry and its factor, if there are factors; entries of a row; how many rows and
        columns the program has; the index of the first norm, and the length class of rows. A row per program.
    """
    programs = [torch.empty(0, NORM_FIELDS, dtype=torch.int64, device="cpu")]
    for row in table_rows(table):
        if row[KIND] == kind and (row[INNER] % ALIGNED_ENTRIES == 0) == even:
            programs.append(_row_norms(row, size) if kind == OF_ROWS else _column_norms(row, size))
    return torch.cat(programs)


def _row_norms(row: list[int], size: int) -> Tensor:
    step, chunks = _chunk_length(row[INNER]), norm_chunks(row)
    length = next(length for length in LENGTHS if row[INNER] <= length or length == TILE)
    height = TILE // length
    block, chunk = _pairs(-(-row[COUNT] // height), chunks)
    out = row[OUT] + block * height * chunks + chunk
    return _norm_programs(row, size, (block * height, height), (chunk * step, step), out, length)


def _column_norms(row: list[int], size: int) -> Tensor:
    lines = _chunk_lines(row[COUNT])
    chunk, block = _pairs(norm_chunks(row), -(-row[INNER] // ACROSS))
    out = row[OUT] + chunk * row[INNER] + block * ACROSS
    return _norm_programs(row, size, (chunk * lines, lines), (block * ACROSS, ACROSS), out, 0)


def _pairs(outer: int, inner: int) -> tuple[Tensor, Tensor]:
    """All pairs of two numbers below these."""
    numbers = torch.arange(outer * inner, device="cpu")
    return numbers // inner, numbers % inner


def _norm_programs(
    row: list[int], size: int, down: tuple[Tensor, int], across: tuple[Tensor, int], out: Tensor, length: int
) -> Tensor:
    """Programs of a matrix: first row and how many at most, the same of columns, index of the first norm."""
    (first, rows), (left, columns) = down, across
    same = torch.ones_like(out)
    by_column = row[KIND] == OF_ROWS
    address = row[COLUMNS] if by_column else row[ROWS]
    fields = [
        row[WEIGHTS] + size * (first * row[INNER] + left),
        address + size * (left if by_column else first) if address else 0 * same,
        same * row[INNER],
        (row[COUNT] - first).clamp(max=rows),
        (row[INNER] - left).clamp(max=columns),
        out,
        same * length,
    ]
    return torch.stack(fields, dim=1)


def unit_programs(starts: Tensor) -> Tensor:
    """First and last unit, and norms of each that are read at once, of the programs of :func:`.scales.units`.

    Args:
        starts: where the norms of each unit begin, units with the fewest first; and the end.

    Returns:
        A row per program, ``(n, 3)``.

    >>> unit_programs(torch.tensor([0, 1, 3, 8])).tolist()
    [[0, 2, 4], [2, 3, 32]]
    """
    counts = starts.diff()
    programs = [torch.empty(0, 3, dtype=torch.int64, device="cpu")]
    first = 0
    for height, width in UNIT_TILES:
        last = int((counts <= width).sum()) if width < MOST else len(counts)
        firsts = torch.arange(first, max(first, last), height, device="cpu")
        lasts = (firsts + height).clamp(max=last)
        programs.append(torch.stack([firsts, lasts, torch.full_like(firsts, width)], dim=1))
        first = max(first, last)
    return torch.cat(programs)


class UnitNorms(NamedTuple):
    """Which logarithms of norms make up the size of which unit."""

    unit: Tensor
    """Of each norm, ``(n,)``."""
    sources: Tensor
    """Index of each norm, the matrix that something was divided out of (or -1), its position, ``(n, 3)``."""
    mean: Tensor
    """Of every unit what its sum of squares is multiplied by, and the exponent of its norms, ``(m, 2)``."""
    targets: Tensor
    """Index of its size, ``(m,)``."""


def split_large_units(norms: UnitNorms, end: int, nowhere: int) -> tuple[UnitNorms, UnitNorms | None]:
    """Split units with very many norms into parts, which would keep one program busy for long.

    Args:
        norms: of all units.
        end: index from which on sums of parts are written.
        nowhere: a position of which nothing is known.

    Returns:
        Units whose norms may be sums of parts; and these parts as units, if there are any.
    """
    counts = torch.bincount(norms.unit, minlength=len(norms.targets))
    is_large = counts[norms.unit] > MOST
    if not bool(is_large.any()):
        return norms, None
    order = norms.unit[is_large].argsort(stable=True)
    unit, sources = norms.unit[is_large][order], norms.sources[is_large][order]
    counts = torch.bincount(unit)
    rank = torch.arange(len(unit), device="cpu") - (counts.cumsum(0) - counts)[unit]
    parts = -(-counts // MOST)
    part = (parts.cumsum(0) - parts)[unit] + rank // MOST
    unit_of_part = torch.repeat_interleave(torch.arange(len(parts), device="cpu"), parts)
    targets = end + torch.arange(len(unit_of_part), device="cpu")
    ones = torch.ones(len(targets), 2, dtype=torch.float64, device="cpu")
    sums = torch.stack([targets, torch.full_like(targets, -1), torch.full_like(targets, nowhere)], dim=1)
    rest = norms._replace(
        unit=torch.cat([norms.unit[~is_large], unit_of_part]),
        sources=torch.cat([norms.sources[~is_large], sums]),
    )
    return rest, UnitNorms(part, sources, ones, targets)

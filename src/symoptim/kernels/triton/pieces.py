"""Which programs sum which squares, for :mod:`.norms`: rows and columns of matrices, in pieces if long."""

import torch
from torch import Tensor

from symoptim.kernels.lay import EVEN
from symoptim.kernels.squares import OF_ROWS, OUT
from symoptim.kernels.table import COLUMNS, COUNT, INNER, KIND, ROWS, WEIGHTS, rows_of

TILE = 2048  # entries that a program has in hand
LENGTHS = (64, 256, 512, 1024, TILE)  # up to which rows are read together, as many as fit
ACROSS = 128  # columns that a program sums
LINES = 128  # rows of which it sums them, at least
PIECES = 256  # of a column, at most
FIELDS = 7  # of a program


def pieces_of(row: list[int]) -> int:
    """In how many pieces every sum of a matrix is taken, the last of which may be shorter.

    Args:
        row: of the table.

    Returns:
        A number of at least one.
    """
    if row[KIND] == OF_ROWS:
        return -(-row[INNER] // _stretch(row[INNER]))
    return -(-row[COUNT] // _lines(row[COUNT]))


def _stretch(inner: int) -> int:
    """Entries of a piece of a row."""
    pieces = -(-inner // TILE)
    return -(-inner // (pieces * EVEN)) * EVEN


def _lines(count: int) -> int:
    """Rows of a piece of columns."""
    return max(LINES, -(-count // PIECES))


def piece_programs(table: Tensor, size: int, *, kind: int, even: bool) -> Tensor:
    """What each program does: see :mod:`.norms`.

    Sums of rows are in the order of the rows, the pieces of a row side by side; of columns all first pieces
    come first.

    Args:
        table: all matrices.
        size: bytes of an entry.
        kind: sums of rows or of columns.
        even: of those whose rows are multiples of eight entries, or of all others.

    Returns:
        Addresses of the first entry and its factor, if there are factors; entries of a row; how many rows and
        columns there are to be summed; the place of the first sum, and the length class of rows. A row per
        program.
    """
    found = [torch.empty(0, FIELDS, dtype=torch.int64, device="cpu")]
    for row in rows_of(table):
        if row[KIND] == kind and (row[INNER] % EVEN == 0) == even:
            found.append(_of_rows(row, size) if kind == OF_ROWS else _of_columns(row, size))
    return torch.cat(found)


def _of_rows(row: list[int], size: int) -> Tensor:
    stretch, pieces = _stretch(row[INNER]), pieces_of(row)
    length = next(length for length in LENGTHS if row[INNER] <= length or length == TILE)
    height = TILE // length
    block, piece = _grid(-(-row[COUNT] // height), pieces)
    out = row[OUT] + block * height * pieces + piece
    return _programs(row, size, (block * height, height), (piece * stretch, stretch), out, length)


def _of_columns(row: list[int], size: int) -> Tensor:
    lines = _lines(row[COUNT])
    piece, block = _grid(pieces_of(row), -(-row[INNER] // ACROSS))
    out = row[OUT] + piece * row[INNER] + block * ACROSS
    return _programs(row, size, (piece * lines, lines), (block * ACROSS, ACROSS), out, 0)


def _grid(outer: int, inner: int) -> tuple[Tensor, Tensor]:
    """All pairs of two numbers below these."""
    numbers = torch.arange(outer * inner, device="cpu")
    return numbers // inner, numbers % inner


def _programs(
    row: list[int],
    size: int,
    down: tuple[Tensor, int],
    across: tuple[Tensor, int],
    out: Tensor,
    length: int,
) -> Tensor:
    """Programs of a matrix: first row and how many at most, the same of columns, first place."""
    (first, rows), (left, columns) = down, across
    alike = torch.ones_like(out)
    by_column = row[KIND] == OF_ROWS
    address = row[COLUMNS] if by_column else row[ROWS]
    factors = address + size * (left if by_column else first) if address else 0 * alike
    return torch.stack(
        [
            row[WEIGHTS] + size * (first * row[INNER] + left),
            factors,
            alike * row[INNER],
            (row[COUNT] - first).clamp(max=rows),
            (row[INNER] - left).clamp(max=columns),
            out,
            alike * length,
        ],
        dim=1,
    )

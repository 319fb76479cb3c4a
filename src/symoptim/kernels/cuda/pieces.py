"""Which programs sum which squares, for :mod:`.squares`: rows and columns of matrices, in pieces if long."""

import torch
from torch import Tensor

from symoptim.kernels.squares import OF_ROWS, OUT
from symoptim.kernels.table import COUNT, INNER, KIND, rows_of

TILE = 4096  # entries that a program has in hand
LENGTHS = (64, 256, 1024, TILE)  # up to which rows are read whole, several at once
COLUMNS, LONG = 0, 1  # in the place of a length: sums of columns, a piece of a long row
ACROSS = 128  # columns that a program sums
LINES = 128  # rows of which it sums them, at least
PIECES = 256  # of a column, at most
STRETCH = 1 << 15  # entries of a piece of a row
EVEN = 8  # entries: 16 bytes or more, which are read at once


def pieces_of(row: list[int]) -> int:
    """In how many pieces every sum of a matrix is taken, the last of which may be shorter.

    Args:
        row: of the table.

    Returns:
        A number of at least one.
    """
    if row[KIND] == OF_ROWS:
        return -(-row[INNER] // STRETCH)
    return -(-row[COUNT] // _lines(row[COUNT]))


def _lines(count: int) -> int:
    return max(LINES, -(-count // PIECES))


def piece_programs(table: Tensor, *, even: bool) -> Tensor:
    """Matrix, first and last row, first and last column, place of the first sum, and length class.

    Sums of rows are in the order of the rows, the pieces of a row side by side; of columns all first pieces
    come first.

    Args:
        table: all matrices.
        even: those whose rows are multiples of eight entries, or all others.

    Returns:
        A row per program, ``(n, 7)``.
    """
    found = [torch.empty(0, 7, dtype=torch.int64, device="cpu")]
    for number, row in enumerate(rows_of(table)):
        if (row[INNER] % EVEN == 0) == even:
            found.append(_of_rows(number, row) if row[KIND] == OF_ROWS else _of_columns(number, row))
    return torch.cat(found)


def _of_rows(number: int, row: list[int]) -> Tensor:
    count, inner, pieces = row[COUNT], row[INNER], pieces_of(row)
    length = next((length for length in LENGTHS if inner <= length), LONG)
    height = 1 if length == LONG else TILE // length
    first, piece = _grid(-(-count // height), pieces)
    first = first * height
    out = row[OUT] + first * pieces + piece
    last, left, right = first + height, piece * STRETCH, (piece + 1) * STRETCH
    return _programs(number, (first, last.clamp(max=count)), (left, right.clamp(max=inner)), out, length)


def _of_columns(number: int, row: list[int]) -> Tensor:
    count, inner = row[COUNT], row[INNER]
    lines = _lines(count)
    piece, block = _grid(pieces_of(row), -(-inner // ACROSS))
    left, out = block * ACROSS, row[OUT] + piece * inner + block * ACROSS
    rows = piece * lines, ((piece + 1) * lines).clamp(max=count)
    return _programs(number, rows, (left, (left + ACROSS).clamp(max=inner)), out, COLUMNS)


def _grid(outer: int, inner: int) -> tuple[Tensor, Tensor]:
    """All pairs of two numbers below these."""
    numbers = torch.arange(outer * inner, device="cpu")
    return numbers // inner, numbers % inner


def _programs(
    number: int, rows: tuple[Tensor, Tensor], columns: tuple[Tensor, Tensor], out: Tensor, length: int
) -> Tensor:
    alike = torch.ones_like(out)
    return torch.stack([alike * number, *rows, *columns, out, alike * length], dim=1)

"""Programs cover every entry, norm and unit once; none has more than it can hold."""

import doctest

import pytest
import torch
from torch import Tensor

from symoptim.kernels import descriptor
from symoptim.kernels.triton import tiling
from symoptim.kernels.triton.tiling import (
    ACROSS,
    MOST,
    TILE,
    UnitNorms,
    norm_chunks,
    norm_programs,
    row_programs,
    split_large_units,
    split_programs,
    unit_programs,
)

SHAPES = [(1, 1), (7, 1), (1, 7), (300, 33), (5, 4096), (3, 4104), (2, 40_000), (40_000, 3), (1000, 136)]
KINDS = {"rows": descriptor.OF_ROWS, "columns": descriptor.OF_COLUMNS}


def a_table(shape: tuple[int, int], kind: int) -> Tensor:
    """A table whose addresses are places in one vector: a matrix, then its factors."""
    found = torch.zeros(1, descriptor.NORM_WIDTH, dtype=torch.long)
    count, inner = shape
    found[0, descriptor.COUNT], found[0, descriptor.INNER], found[0, descriptor.KIND] = count, inner, kind
    side = descriptor.COLUMNS if kind == descriptor.OF_ROWS else descriptor.ROWS
    found[0, side], found[0, descriptor.OUT] = count * inner, 5
    return found


def test_examples_in_docstrings_hold() -> None:
    results = doctest.testmod(tiling)  # other modules of this package cannot be collected without Triton
    assert results.attempted == 2
    assert not results.failed


STEPPED = {
    "rows": [(1, 1, 1), (1, 7, 33), (1, 300, 64), (1, 5, 2048), (1, 3, 4096), (1, 3, 5000), (1, 2, 50_000)],
    "very long rows": [(1, 2, 70_000), (1, 1, 1_000_003)],
    "columns": [(300, 130, 1), (5, 3, 4), (4, 2, 128), (40_000, 2, 9)],
    "no filters": [(1, 1, 1), (1, 1, 1001), (1, 1, 100_000), (1, 1, 0)],
}


@pytest.mark.parametrize("name", STEPPED)
def test_programs_step_every_entry_once(name: str) -> None:
    shapes = STEPPED[name]
    about = torch.zeros(len(shapes), descriptor.WIDTH, dtype=torch.long)
    about[:, descriptor.OUTER : descriptor.INNER + 1] = torch.tensor(shapes)
    about[:, descriptor.KIND] = descriptor.PLAIN if name == "no filters" else descriptor.UNIT_NORM
    found = [torch.zeros(outer * count * inner, dtype=torch.long) for outer, count, inner in shapes]
    for some, programs in row_programs(about).items():
        for number, first, length in programs.tolist():
            _, count, inner = shapes[number]
            if name == "no filters":
                found[number][first : first + some.length] += 1
            else:
                height = min(count - first, some.length // length if length else 1)
                assert inner <= (length or some.length) or not some.in_registers
                found[number][first * inner : (first + height) * inner] += 1
    programs, scratch = split_programs(about)
    assert (len(programs) > 0) == (name in ("very long rows", "columns"))
    for number, base, stride, first, last, columns, end, own, segment, segments, _ in programs.tolist():
        assert own + (segments * tiling.PRODUCTS) * ACROSS <= scratch
        assert segment < segments
        places = base + torch.arange(first, last)[:, None] * stride + torch.arange(columns)
        found[number][places[places < end]] += 1
    assert all(bool(one.eq(1).all()) for one in found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_programs_sum_every_square_once(shape: tuple[int, int], kind: str) -> None:
    about, (count, inner) = a_table(shape, KINDS[kind]), shape
    axis, sums = (1, count) if kind == "rows" else (0, inner)
    matrix = torch.rand(shape, dtype=torch.float64)
    factors = torch.rand(shape[axis], dtype=torch.float64)
    memory = torch.cat([matrix.flatten(), factors])
    chunks = norm_chunks(descriptor.table_rows(about)[0])
    found = torch.full((5 + sums * chunks,), torch.nan, dtype=torch.float64)
    programs = norm_programs(about, 1, kind=KINDS[kind], even=inner % 8 == 0)
    assert not len(norm_programs(about, 1, kind=KINDS[kind], even=inner % 8 != 0))
    assert not len(norm_programs(about, 1, kind=1 - KINDS[kind], even=inner % 8 == 0))
    for first, factor, width, rows, columns, out, length in programs.tolist():
        assert width == inner
        assert columns <= (length if kind == "rows" else ACROSS)
        assert kind == "columns" or rows * length <= TILE
        part = memory.as_strided((rows, columns), (inner, 1), first)
        by = memory[factor : factor + (columns if kind == "rows" else rows)]
        total = (part * (by if kind == "rows" else by[:, None])).square().sum(axis)
        assert found[out : out + len(total)].isnan().all()
        found[out : out + len(total)] = total
    shaped = found[5:].view(count, chunks) if kind == "rows" else found[5:].view(chunks, inner).T
    expected = (matrix * (factors if kind == "rows" else factors[:, None])).square().sum(axis)
    torch.testing.assert_close(shaped.sum(1), expected, rtol=1e-12, atol=0)


def test_every_unit_has_one_program_wide_enough() -> None:
    counts = torch.tensor([0, 1, 1, 4, *[5] * 70, 32, 33, 256, 257, 10_000])
    starts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    seen: list[int] = []
    for first, last, width in unit_programs(starts).tolist():
        seen += range(first, last)
        assert counts[first:last].max() <= width or width == 4096
        assert (last - first) * width <= 4096
    assert seen == list(range(len(counts)))


def test_units_of_very_many_numbers_are_sums_of_parts() -> None:
    unit = torch.tensor([0, *[2] * (2 * MOST + 3), 1, *[3] * (MOST + 1), 2])
    sources = torch.stack([torch.arange(len(unit)), torch.full_like(unit, -1), torch.zeros_like(unit)], dim=1)
    norms = UnitNorms(unit, sources, torch.ones(4, 2), torch.arange(4))
    rest, parts = split_large_units(norms, len(unit), 7)
    assert parts is not None
    values = torch.cat([torch.rand(len(unit), dtype=torch.float64), torch.zeros(len(parts.targets))])
    values.index_add_(0, parts.targets[parts.unit], values[parts.sources[:, 0]])
    sums = torch.zeros(4, dtype=torch.float64).index_add_(0, rest.unit, values[rest.sources[:, 0]])
    expected = torch.zeros(4, dtype=torch.float64).index_add_(0, unit, values[: len(unit)])
    torch.testing.assert_close(sums, expected)
    assert torch.bincount(parts.unit).max() <= MOST
    assert rest.sources[rest.sources[:, 0] >= len(unit), 2].eq(7).all()
    assert len(rest.unit) == 2 + 3 + 2
    assert split_large_units(norms._replace(unit=unit.clamp(max=1)[:3], sources=sources[:3]), 3, 7)[1] is None

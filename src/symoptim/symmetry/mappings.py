"""The groups that tools for quantizing language models ask people to write by hand.

AWQ and SmoothQuant move scales from activations into weights: they divide the channels of one layer and
multiply the inputs of the layers behind it. Which layers these are is written down for every architecture, in
tables. A generator that multiplies one row of a module and divides a column of others says just that:

    norm -> the linear maps that read it        v -> o        up -> down

These tools divide the *last n rows* of the smooth layer, in order, by n scales, and multiply all n columns of
every balance layer by them, in order. :func:`mappings` has only the groups for which this changes no output;
:func:`indexed_mappings` also those with other rows, such as of fused queries, keys and values.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.symmetry.describe import KindOfUnit, kinds
from symoptim.symmetry.names import is_number, numbers_in, products, starred
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import on_cpu, squeezed, whole_numbers


class Mapping(NamedTuple):
    """A module whose outputs can be divided by what inputs of others are multiplied by.

    If ``rows`` is empty, channel k is column k of every balance layer (they have no other columns) and row k
    of the last rows of the smooth layer. Otherwise ``rows[i]`` of its weight and bias go against
    ``columns[i]`` of every balance layer; a row occurs as often as there are columns that read it.
    """

    smooth_layer: str
    balance_layers: tuple[str, ...]
    channels: int
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    @property
    def is_simple(self) -> bool:
        """Whether the last rows and all columns are meant, in order."""
        return not self.rows


@on_cpu
def mappings(spec: SymmetrySpec) -> list[Mapping]:
    """The groups of a model that can be given to AWQ and SmoothQuant, in the model's order.

    Args:
        spec: the symmetries of the model.

    Returns:
        Groups for which dividing the last rows in order and multiplying all columns changes no output.

    >>> from symoptim.symmetry.discover import discover
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> mappings(discover(model, (torch.rand(5, 3),)))
    [Mapping(smooth_layer='0', balance_layers=('2',), channels=4, rows=(), columns=())]
    """
    return [one for one in indexed_mappings(spec) if one.is_simple]


@on_cpu
def indexed_mappings(spec: SymmetrySpec) -> list[Mapping]:
    """All groups in which rows of one weight go against columns of others, with the indices if needed.

    Args:
        spec: the symmetries of the model.

    Returns:
        Groups, in the model's order.
    """
    found: dict[tuple[str, tuple[str, ...]], list[_Channels]] = {}
    for kind in kinds(spec):
        moves = _moves(spec, kind)
        for sides in ((1, -1), (-1, 1)) if moves else ():
            channels = _channels(spec, kind, moves, *sides)
            if channels is not None:
                _add(found.setdefault((channels.smooth, channels.balance), []), channels)
                break
    return [_mapping(spec, channels) for same in found.values() for channels in same]


class _Move(NamedTuple):
    """How slices of a tensor move along an axis: by which sign, each with which generator (-1: none)."""

    axis: int
    sign: int
    generators: Tensor


class _Channels(NamedTuple):
    """For every row and column the generator that moves it; -1 for none."""

    smooth: str
    balance: tuple[str, ...]
    rows: Tensor
    columns: Tensor


def _moves(spec: SymmetrySpec, kind: KindOfUnit) -> dict[str, _Move]:
    """How generators of a kind move tensors, if each slice goes with one of them, by the power 1 or -1."""
    element = torch.zeros(len(spec), dtype=torch.float64)
    mine = torch.tensor(kind.generators)
    # Each generator is known by its number, drawn so large that sums and multiples are no other's number;
    # float64 has them exactly.
    drawn = torch.randint(2**48, 2**49, (len(mine),), generator=torch.Generator().manual_seed(0))
    element[mine] = drawn.double()
    ordered, order = element[mine].sort()
    found: dict[str, _Move] = {}
    for name, terms in spec.log_terms(element, [one.tensor for one in kind.slices]).items():
        axis, values = _along_one_axis(terms)
        signs = set(whole_numbers(values[values != 0].sign().long()))
        if axis is None or len(signs) != 1:
            return {}
        places = torch.searchsorted(ordered, values.abs()).clamp(max=len(ordered) - 1)
        there = ordered[places] == values.abs()
        if not bool((there | (values == 0)).all()):
            return {}
        found[name] = _Move(axis, signs.pop(), torch.where(there, mine[order[places]], -1))
    return found


def _along_one_axis(terms: Sequence[Tensor]) -> tuple[int | None, Tensor]:
    """The axis along which a sum varies, and its values there; no axis if there are several.

    A sum over a vector of size 1 varies along axis 0.
    """
    by_shape: dict[tuple[int, ...], Tensor] = {}
    for term in map(squeezed, terms):
        shape = tuple(term.shape)
        by_shape[shape] = by_shape[shape] + term if shape in by_shape else term
    summed = [squeezed(one) for one in by_shape.values()]
    axes = {axis for one in summed for axis, size in enumerate(one.shape) if size > 1}
    total = sum(summed[1:], summed[0]) if len(axes) <= 1 else None
    if total is None or not total.dim():
        return None, torch.zeros(0)
    return min(axes, default=0), total.flatten()


def _channels(
    spec: SymmetrySpec, kind: KindOfUnit, moves: dict[str, _Move], up: int, down: int
) -> _Channels | None:
    """The rows of one module and the columns of others, if that is all that moves."""
    rows = {name: move for name, move in moves.items() if move.sign == up}
    columns = {name: move for name, move in moves.items() if move.sign == down}
    smooth = _one_module(spec, rows)
    balance = tuple(dict.fromkeys(name.removesuffix(".weight") for name in columns))
    if smooth is None or not columns or smooth in balance:
        return None
    if not all(name.endswith(".weight") and move.axis == 1 for name, move in columns.items()):
        return None
    of_rows, of_columns = rows[f"{smooth}.weight"].generators, [move.generators for move in columns.values()]
    mine = sorted(kind.generators)
    each_once = sorted(whole_numbers(of_rows[of_rows >= 0])) == mine
    first = of_columns[0]
    alike = all(torch.equal(first, other) for other in of_columns[1:])
    if not each_once or not alike or set(whole_numbers(first[first >= 0])) != set(mine):
        return None
    return _Channels(smooth, balance, of_rows, first)


def _one_module(spec: SymmetrySpec, rows: dict[str, _Move]) -> str | None:
    """The module whose weight, and bias if it has one, moves along axis 0."""
    smooth = next((name.removesuffix(".weight") for name in rows if name.endswith(".weight")), None)
    if smooth is None or any(move.axis != 0 for move in rows.values()):
        return None
    has_bias = f"{smooth}.bias" in spec.tensors or f"{smooth}.bias" in spec.aliases
    if set(rows) != {f"{smooth}.weight", *([f"{smooth}.bias"] if has_bias else [])}:
        return None
    first, *others = (move.generators for move in rows.values())
    return smooth if all(torch.equal(first, other) for other in others) else None


def _add(same: list[_Channels], new: _Channels) -> None:
    """Join channels of the same modules, unless a row or a column has a generator already."""
    for number, known in enumerate(same):
        pairs = ((known.rows, new.rows), (known.columns, new.columns))
        if not any(bool(((one >= 0) & (other >= 0)).any()) for one, other in pairs):
            rows, columns = (torch.maximum(one, other) for one, other in pairs)
            same[number] = known._replace(rows=rows, columns=columns)
            return
    same.append(new)


def _mapping(spec: SymmetrySpec, channels: _Channels) -> Mapping:
    rows, columns = channels.rows, channels.columns
    count = int((rows >= 0).sum())
    if _in_order(spec, channels):
        return Mapping(channels.smooth, channels.balance, count)
    row_of = {generator: row for row, generator in enumerate(whole_numbers(rows)) if generator >= 0}
    used = whole_numbers((columns >= 0).nonzero().flatten())
    of_used = tuple(row_of[generator] for generator in whole_numbers(columns[columns >= 0]))
    return Mapping(channels.smooth, channels.balance, count, of_used, tuple(used))


def _in_order(spec: SymmetrySpec, channels: _Channels) -> bool:
    """Whether all columns of matrices go against the last rows of a matrix or a vector, in order."""
    rows, columns = channels.rows, channels.columns
    shapes = [spec.tensors[f"{name}.weight"].shape for name in (channels.smooth, *channels.balance)]
    first = len(rows) - len(columns)
    if first < 0 or len(shapes[0]) > 2 or any(len(shape) != 2 for shape in shapes[1:]):
        return False
    # A bias and a vector are divided as a whole: they must have no other rows.
    if first > 0 and (len(shapes[0]) == 1 or f"{channels.smooth}.bias" in spec.tensors):
        return False
    return bool((columns >= 0).all() and (rows[:first] < 0).all()) and torch.equal(rows[first:], columns)


def as_yaml(found: Iterable[Mapping]) -> str:
    r"""Mappings as a recipe has them: layers of a stack are one regular expression, which matches no others.

    Args:
        found: of :func:`mappings`; what is not simple is left out.

    Returns:
        The part of the recipe.

    >>> layers = [Mapping(f"layers.{k}.norm", (f"layers.{k}.up",), 8) for k in range(2)]
    >>> print(as_yaml([*layers, Mapping("norm", ("head",), 8)]))
    mappings:
      - smooth_layer: 're:^layers\.(0|1)\.norm$'  # 2 times 8 channels
        balance_layers: ['re:^layers\.(0|1)\.up$']
      - smooth_layer: 'norm'  # 8 channels
        balance_layers: ['head']
    """
    lines = ["mappings:"]
    for names, same in _entries(one for one in found if one.is_simple):
        smooth, *balance = ("'" + name.replace("'", "''") + "'" for name in names)
        times = f"{len(same)} times " if len(same) > 1 else ""
        channels = " or ".join(str(number) for number in dict.fromkeys(one.channels for one in same))
        lines.append(f"  - smooth_layer: {smooth}  # {times}{channels} channels")
        lines.append(f"    balance_layers: [{', '.join(balance)}]")
    return "\n".join(lines)


def _entries(found: Iterable[Mapping]) -> Iterator[tuple[list[str], list[Mapping]]]:
    """Names or patterns, and the mappings they stand for."""
    alike: dict[tuple[str, ...], dict[tuple[int, ...], Mapping]] = {}
    for one in found:
        names = (one.smooth_layer, *one.balance_layers)
        numbers = set(map(numbers_in, names))
        # With different numbers in its names a pattern would match other pairs, too.
        key = tuple(map(starred, names)) if len(numbers) == 1 else names
        alike.setdefault(key, {})[numbers.pop()] = one
    for layers in alike.values():
        for choices in products(set(layers)):
            same = [layers[numbers] for numbers in sorted(itertools.product(*choices))]
            names = [same[0].smooth_layer, *same[0].balance_layers]
            yield ([_pattern(name, choices) for name in names] if len(same) > 1 else names), same


def _pattern(name: str, choices: Sequence[Sequence[int]]) -> str:
    """A regular expression for a name in which each number may be one of several."""
    left = iter(choices)
    parts = (_one_of(next(left)) if is_number(part) else re.escape(part) for part in name.split("."))
    return "re:^" + r"\.".join(parts) + "$"


def _one_of(numbers: Sequence[int]) -> str:
    joined = "|".join(map(str, numbers))
    return f"({joined})" if len(numbers) > 1 else joined

"""``param_groups``: every parameter of a model in the group its layer calls for, as a printable list."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from symoptim.optim.checks import labelled
from symoptim.routing import GEOMETRIES, Geometry, Role, Routed, route


class ParameterGroups(list[dict[str, Any]]):
    """Parameter groups for any optimizer; ``print`` shows what went where."""

    def __init__(self, routed: list[Routed]) -> None:
        """Collect routed parameters into one group per geometry and axis, in the model's order."""
        self.routed = routed
        kinds = sorted({r.role[:2] for r in routed}, key=lambda kind: (GEOMETRIES.index(kind[0]), kind[1]))
        super().__init__(_group(routed, geometry, axis) for geometry, axis in kinds)

    def __str__(self) -> str:
        """Return a table of all parameters: name, shape, geometry, axis and the reason."""
        found = {id(parameter): place for place, (_, parameter, _) in enumerate(self.routed)}
        rows: list[tuple[int, tuple[str, ...]]] = []
        for group in self:
            for name, parameter in labelled(group):
                place = found.get(id(parameter), len(found))
                known = self.routed[place] if place < len(found) else None
                geometry, axis = group.get("geometry", "rows"), group.get("axis", 0)
                row = (
                    " = ".join(known.names) if known else name,
                    "x".join(map(str, parameter.shape)) or "scalar",
                    geometry,
                    "" if geometry == "plain" else str(axis),
                    known.role.reason if known else "added by hand",
                )
                rows.append((place, row))
        in_order = [row for _, row in sorted(rows, key=lambda place_and_row: place_and_row[0])]
        return _table([("parameter", "shape", "geometry", "axis", "because"), *in_order])


def _table(rows: list[tuple[str, ...]]) -> str:
    """Columns of equal width, a rule under the first row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def param_groups(
    model: nn.Module, *, overrides: Mapping[str, Geometry | Role] | None = None
) -> ParameterGroups:
    """Sort the parameters of ``model`` into groups by layer type.

    Filters of hidden linear and convolution layers become ``rows`` (``axis`` 1 for transposed
    convolutions), the last linear map or 1x1 convolution ``columns``, everything else (biases, norms,
    embeddings, recurrent and home-made parameters) ``plain``. Every parameter is in exactly one group,
    frozen ones included.

    *Last* means registered last in the model, which need not be the last one used; where it is not, and
    where there are several heads, say so in ``overrides``.
    *Tied weights* appear once, under all their names; where their uses ask for different geometries
    (an embedding tied to the output map, say) they are plain.

    Args:
        model: the network.
        overrides: geometry by name of a module (for all weights under it with two axes or more) or of a
            single parameter, or a :class:`symoptim.Role` to give the axis too; the longest name wins.

    Returns:
        Groups for :class:`symoptim.ScaledSGD`, :class:`symoptim.UnitNormSGD`, :func:`symoptim.invariant`
        or any optimizer of torch; print them to see what went where.

    Raises:
        OptionError: the model has no parameters, or an override names nothing in it.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2, bias=False))
    >>> print(param_groups(model))
    parameter  shape  geometry  axis  because
    --------------------------------------------------------
    0.weight   8x4    rows      0     Linear filters
    0.bias     8      plain           bias
    2.weight   2x8    columns   0     last Linear registered
    """
    return ParameterGroups(route(model, overrides))


def _group(routed: list[Routed], geometry: Geometry, axis: int) -> dict[str, Any]:
    members = [r for r in routed if r.role[:2] == (geometry, axis)]
    return {
        "params": [r.parameter for r in members],
        "param_names": [r.names[0] for r in members],
        "geometry": geometry,
        "axis": axis,
    }

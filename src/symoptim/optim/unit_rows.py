"""How ``UnitNormSGD`` begins: which rows get unit norm, and which rescaling keeps outputs what they were."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from symoptim.errors import EpsWarning, OptionError, SymmetryError, first_few, warn_user
from symoptim.geometry.filters import lacks_direction
from symoptim.geometry.tensors import gathered
from symoptim.geometry.unit_norm import NOTED, change_of_norms
from symoptim.modules import unwrapped
from symoptim.optim.validation import Group, is_trained_matrix, labeled, zero_redundancy_optimizer
from symoptim.routing import axes_of
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.state import TOLERANCE
from symoptim.symmetry.unit_rows import GaugeRows, gauge_rows, unit_norm_element


class GaugeStart(NamedTuple):
    """A rescaling of a model that gives rows unit norm, and groups with what has none then as plain."""

    model: nn.Module
    spec: SymmetrySpec
    element: Tensor
    groups: list[Group]
    unit: set[Tensor]
    """Weights of ``rows`` groups whose rows will have unit norm."""
    others: list[str]
    """Names of those that were put into ``plain`` groups."""

    def rescale(self) -> None:
        """Give the rows unit norm; an error, with nothing changed, if outputs would change."""
        if not bool(self.element.any()):
            return
        tolerance = TOLERANCE
        if self.spec.approximate and not self.spec.examples:
            tolerance = math.inf
            warn_user(
                "these symmetries hold up to an eps, and whether it is felt where UnitNormSGD gives rows "
                "unit norm was not checked, for there is no input: give one to groups, as in "
                "param_groups(model, spec=spec, example_inputs=(x,)), or example_inputs=(), "
                "keywords=dict(batch)",
                EpsWarning,
            )
        try:
            self.spec.rescale_(unwrapped(self.model), self.element, tolerance=tolerance)
        except SymmetryError as failure:
            raise SymmetryError(
                f"UnitNormSGD cannot begin: {failure}. Both are options of symoptim.balance_: to accept "
                "the change call symoptim.balance_(model, spec=groups.spec, tolerance=math.inf) first, after "
                "which rows have unit norm"
            ) from failure


def gauge_weights(
    model: nn.Module, spec: SymmetrySpec, rows: Mapping[Tensor, int]
) -> list[tuple[Tensor, GaugeRows]]:
    """Those of these weights whose rows have a norm that is gauge.

    Frozen parameters do not absorb scales: they may be saved elsewhere.

    Args:
        model: whose they are.
        spec: its symmetries.
        rows: weights, with the axis that counts rows.

    Returns:
        Weights, in an order in which they can be normalized.
    """
    there = spec.require_model(unwrapped(model))
    axes = {name: rows[there[name]] for name in spec.tensors if there[name] in rows}
    fixed = [name for name, one in there.items() if isinstance(one, nn.Parameter) and not one.requires_grad]
    return [(there[found.name], found) for found in gauge_rows(spec, axes, fixed)]


@torch.no_grad()
def gauge_start(model: nn.Module, spec: SymmetrySpec, groups: list[Group]) -> GaugeStart:
    """Find how the rows of groups get unit norm; nothing is changed.

    Args:
        model: whose parameters the groups are of.
        spec: its symmetries.
        groups: of :func:`symoptim.param_groups`; their ``"normalize"`` is None if weights that cannot be
            given unit norm are to be plain.

    Returns:
        What to begin with.
    """
    rows = {
        parameter: int(group["axis"])
        for group in groups
        if group["geometry"] == "rows" and group["normalize"] is not False
        for parameter in group["params"]
        if is_trained_matrix(parameter) and not bool(_without_direction(parameter, group["axis"]))
    }
    gauge = gauge_weights(model, spec, rows)
    there = spec.require_model(unwrapped(model))
    element = unit_norm_element(spec, there, [found for _, found in gauge])
    log_scales = spec.log_scales(element)
    names = {there[name]: name for name in spec.tensors}
    loose: set[Tensor] = set()
    for parameter, axis in rows.items():
        scale = log_scales[names[parameter]].exp() if parameter in names else torch.ones(())
        after = (parameter.detach().cpu().double() * scale).to(parameter.dtype)
        if change_of_norms(after, axes_of("rows", axis, parameter.ndim)) > 1 + NOTED:
            loose.add(parameter)
    parted = [part for group in groups for part in _parted(group, loose)]
    others = [
        name for group in groups if group["normalize"] is None for name, p in labeled(group) if p in loose
    ]
    return GaugeStart(model, spec, element, parted, {*rows} - loose, others)


def _without_direction(parameter: Tensor, axis: int) -> Tensor:
    return gathered(lacks_direction(parameter.detach(), axes_of("rows", axis, parameter.ndim))).any()


def _parted(group: Group, loose: set[Tensor]) -> list[Group]:
    """A group, without weights that go into a plain group after it."""
    if group["normalize"] is not None or not any(p in loose for p in group["params"]):
        return [group]
    found: list[Group] = []
    for is_loose, role in ((False, {}), (True, {"geometry": "plain", "axis": 0})):
        chosen = [k for k, p in enumerate(group["params"]) if (p in loose) is is_loose]
        lists = {key: [group[key][k] for k in chosen] for key in ("params", "param_names") if key in group}
        found += [{**group, **lists, **role}] if chosen else []
    return found


@torch.no_grad()
def changes_of_norms(group: Group, some: Iterable[Tensor]) -> dict[str, float]:
    """By how much normalization would change norms of rows; of weights where it would.

    Args:
        group: of ``rows``.
        some: the weights of it to compare; frozen ones are not normalized.

    Returns:
        The largest factor of each, by the words that name it.
    """
    wanted, found = {*some}, dict[str, float]()
    for name, parameter in labeled(group):
        if parameter not in wanted or not is_trained_matrix(parameter):
            continue
        over = axes_of("rows", group["axis"], parameter.ndim)
        factor = change_of_norms(parameter, over)
        if factor > 1:
            found[name] = factor
    return found


def require_unit_norm_in_parts() -> None:
    """Refuse to normalize a part of the parameters, which torch's ZeroRedundancyOptimizer hands out.

    All its parameters are looked at, so that all processes refuse.
    """
    whole = zero_redundancy_optimizer()
    groups: list[Group] = [] if whole is None else whole.param_groups
    named: list[Group] = [{"geometry": "rows", "axis": 0, **group} for group in groups]
    changed = [changes_of_norms(group, group["params"]) for group in named if group["geometry"] == "rows"]
    if names := [name for group in changed for name in group]:
        raise OptionError(
            "ZeroRedundancyOptimizer gives each process a part of the parameters, so that each would "
            f"normalize other ones ({first_few(names)}): give all rows unit norm on every process first, by "
            "symoptim.balance_(model, spec=spec), which leaves what the model computes as it is (rows that "
            "it leaves out belong into groups with geometry='plain'), or by symoptim.balance_(model, "
            "tolerance=math.inf), which does not"
        )

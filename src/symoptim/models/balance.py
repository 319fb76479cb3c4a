"""The paper's start: every filter of every layer of unit norm; and what of it leaves outputs as they are."""

import math
from typing import Literal, NamedTuple

import torch
from torch import nn

from symoptim.errors import GeometryWarning, OptionError, ZeroFilterError, first_few, warn_user
from symoptim.geometry.filters import Axes, lacks_direction
from symoptim.geometry.tensors import update_dtype
from symoptim.geometry.unit_norm import NOTED, change_of_norms, normalize
from symoptim.modules import unwrapped
from symoptim.routing import axes_of, route
from symoptim.symmetry.roles import roles_from
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.state import TOLERANCE
from symoptim.symmetry.unit_rows import gauge_rows, unit_norm_element


@torch.no_grad()
def balance_(
    model: nn.Module,
    *,
    classifier: Literal["rows", "columns"] = "rows",
    spec: SymmetrySpec | None = None,
    inputs: object = None,
    tolerance: float = TOLERANCE,
) -> nn.Module:
    """Divide every filter that :func:`symoptim.param_groups` would find by its norm, in place.

    The classifier is normalized by rows too ("each class vector is unit-normalized", arXiv:1511.01754), or by
    columns, as a descendant of its authors' code does. This is a start for training, not a symmetry: unless
    the scales are swallowed by normalization layers it changes what the network computes, and a
    :class:`symoptim.errors.GeometryWarning` says by how much it changes norms, unless ``tolerance=math.inf``
    says that this is meant.

    With the symmetries of the network outputs stay what they were: only rows whose norm is gauge get unit
    norm, what moves with them absorbs their scale, and all other weights (the classifier's, too) stay.

    Args:
        model: the network.
        classifier: what of the last linear map gets unit norm; not together with ``spec``.
        spec: symmetries of that model, of :func:`symoptim.discover`.
        inputs: with ``spec``, calls to measure the change of outputs on, as for
            :meth:`.SymmetrySpec.rescale_`.
        tolerance: with ``spec``, relative change of outputs that is accepted; ``math.inf`` for any, without
            measuring, with symmetries or without.

    Returns:
        The same network.

    Raises:
        OptionError: ``classifier`` and ``spec`` are both given, or ``inputs`` or ``tolerance`` without it.
        SymmetryError: the symmetries are another model's, weights would be too large, or outputs would change
            by more than the tolerance, because the eps of a normalization is felt.
        ZeroFilterError: a filter is zero; then nothing has been changed.

    >>> model = balance_(nn.Linear(3, 2), tolerance=math.inf)
    >>> model.weight.norm(dim=1).allclose(torch.ones(2))
    True
    >>> from symoptim.symmetry.discover import discover
    >>> model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.rand(5, 3)
    >>> before = model(x)
    >>> model = balance_(model, spec=discover(model, (x,)))
    >>> model[0].weight.norm(dim=1).allclose(torch.ones(4)), model(x).allclose(before, atol=1e-5)
    (True, True)
    """
    if spec is not None:
        return _balance_by(spec, model, classifier, inputs, tolerance)
    if inputs is not None or tolerance not in (TOLERANCE, math.inf):
        raise OptionError(
            "inputs= and tolerance= are about outputs that stay what they were, which needs the symmetries "
            "of the model: give spec=symoptim.discover(model, example_inputs), or leave them out "
            "(tolerance=math.inf accepts any change)"
        )
    filters = _filters(model, classifier)
    if tolerance != math.inf:
        _warn_of_change(filters)
    _normalize(filters)
    return model


class Filters(NamedTuple):
    """A weight that has filters, its name, and the axes these extend over."""

    name: str
    weight: nn.Parameter
    over: Axes


@torch.no_grad()
def start_balanced(model: nn.Module, classifier: Literal["rows", "columns"] = "rows") -> None:
    """Give every filter of a network unit norm while it is initialized, before its outputs matter."""
    _normalize(_filters(model, classifier))


def _filters(model: nn.Module, classifier: Literal["rows", "columns"]) -> list[Filters]:
    """All weights with filters; an error if one of these has no direction."""
    found: list[Filters] = []
    for names, weight, role in route(model):
        if role.geometry == "plain":
            continue
        over = axes_of(classifier if role.geometry == "columns" else "rows", role.axis, weight.ndim)
        if lacks_direction(weight, over).any():
            raise ZeroFilterError(
                f"parameter '{names[0]}' has filters that are zero, not finite, or too small or large to "
                "square: initialize the model first"
            )
        found.append(Filters(names[0], weight, over))
    return found


def _normalize(filters: list[Filters]) -> None:
    for _, weight, over in filters:
        weight.copy_(normalize(weight.to(update_dtype(weight.dtype)), over))


def _warn_of_change(filters: list[Filters]) -> None:
    """Say by how much norms change, if they do."""
    changes = {name: change_of_norms(weight, over) for name, weight, over in filters}
    changed = [name for name, factor in changes.items() if factor > 1 + NOTED]
    if changed:
        warn_user(
            "balance_ divides filters by their norms: the length of one changes by a factor of up to "
            f"{max(changes.values()):.3g}, and what the model computes changes too, unless normalization "
            f"layers follow: {first_few(changed)}. Give spec=symoptim.discover(model, ...), with which "
            "outputs stay what they are, or tolerance=math.inf if the change is meant",
            GeometryWarning,
        )


def _balance_by(
    spec: SymmetrySpec, model: nn.Module, classifier: str, inputs: object, tolerance: float
) -> nn.Module:
    """Unit norm for rows whose norm is gauge."""
    if classifier != "rows":
        raise OptionError(
            f"classifier={classifier!r} and spec= cannot be combined: outputs depend on the size of a "
            "classifier's filters; leave one of them out"
        )
    inner = unwrapped(model)
    there = spec.require_model(inner)
    roles = roles_from(spec, inner, route(inner))
    axes = {name: role.axis for name, role in roles.items() if role.geometry == "rows"}
    element = unit_norm_element(spec, there, gauge_rows(spec, axes))
    spec.rescale_(inner, element, inputs=inputs, tolerance=tolerance)
    return model

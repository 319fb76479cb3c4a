"""The paper's start: every filter of every layer of unit norm; and what of it leaves outputs as they are."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from symoptim.errors import OptionError, ZeroFilterError
from symoptim.geometry.filters import lacks_direction, update_dtype
from symoptim.geometry.unit_norm import normalize
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
    inputs: Any = None,
    tolerance: float = TOLERANCE,
) -> nn.Module:
    """Divide every filter that :func:`symoptim.param_groups` would find by its norm, in place.

    The classifier is normalized by rows too ("each class vector is unit-normalized", arXiv:1511.01754), or by
    columns, as a descendant of its authors' code does. This is a start for training, not a symmetry: unless
    the scales are swallowed by normalization layers it changes what the network computes.

    With the symmetries of the network outputs stay what they were: only rows whose norm is gauge get unit
    norm, what moves with them absorbs their scale, and all other weights (the classifier's, too) stay.

    Args:
        model: the network.
        classifier: what of the last linear map gets unit norm; not together with ``spec``.
        spec: symmetries of that model, of :func:`symoptim.discover`.
        inputs: with ``spec``, calls to measure the change of outputs on, as for
            :meth:`.SymmetrySpec.rescale_`.
        tolerance: with ``spec``, relative change of outputs that is accepted; ``math.inf`` for any, without
            measuring.

    Returns:
        The same network.

    Raises:
        OptionError: ``classifier`` and ``spec`` are both given, or ``inputs`` or ``tolerance`` without it.
        SymmetryError: the symmetries are another model's, weights would be too large, or outputs would change
            by more than the tolerance, because the eps of a normalization is felt.
        ZeroFilterError: a filter is zero; then nothing has been changed.

    >>> model = balance_(nn.Linear(3, 2))
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
    if inputs is not None or tolerance != TOLERANCE:
        raise OptionError(
            "inputs= and tolerance= are about outputs that stay what they were, which needs the symmetries "
            "of the model: give spec=symoptim.discover(model, example_inputs), or leave them out"
        )
    balanced: list[tuple[nn.Parameter, Tensor]] = []
    for names, weight, role in route(model):
        if role.geometry == "plain":
            continue
        over = axes_of(classifier if role.geometry == "columns" else "rows", role.axis, weight.ndim)
        if lacks_direction(weight, over).any():
            raise ZeroFilterError(
                f"parameter '{names[0]}' has filters that are zero, not finite, or too small or large to "
                "square: initialize the model first"
            )
        balanced.append((weight, normalize(weight.to(update_dtype(weight.dtype)), over)))
    for weight, new in balanced:
        weight.copy_(new)
    return model


def _balance_by(
    spec: SymmetrySpec, model: nn.Module, classifier: str, inputs: Any, tolerance: float
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

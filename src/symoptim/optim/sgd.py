"""``ScaledSGD`` (SM) and ``UnitNormSGD`` (UN): signatures and what they promise."""

from collections.abc import Mapping
from typing import ClassVar

from symoptim.errors import OptionError, ZeroFilterError
from symoptim.optim.apply import Factors, filter_norms
from symoptim.optim.base import GeometricSGD
from symoptim.optim.checks import Group, filters_without_direction, warn_of_zero_filters
from symoptim.routing import Geometry
from symoptim.updates.catalog import PLAIN, SCALED, UNIT_NORM, Update


class ScaledSGD(GeometricSGD):
    r"""SGD in the scaled metric (SM): each filter's gradient times the filter's own squared norm.

    .. math:: w \leftarrow w - r\, |w|^2 g

    for every row of a ``rows`` group and every column of a ``columns`` group; ``plain`` groups take plain
    SGD. The loss curve is the same from every rescaling of the weights that the paper names
    (arXiv:1511.01754, eqs. 1-3, 7 and Table 1), with momentum and weight decay too.

    A zero filter stays where it is; adding one warns (:class:`symoptim.errors.ZeroFilterWarning`).

    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> optimizer = ScaledSGD([w], lr=0.1)
    >>> w[0, 0].backward()
    >>> optimizer.step()
    >>> w.tolist()
    [[0.5, 4.0]]

    .. note:: Biases are not in the paper. A plain bias does not move with its row, so a network with
        biases in its rescaled layers is not trained invariantly; batch normalization right after the
        layer makes its bias irrelevant, or leave the bias out.
    """

    updates: ClassVar[Mapping[Geometry, Update]] = {"rows": SCALED, "columns": SCALED, "plain": PLAIN}

    def _check(self, group: Group) -> None:
        super()._check(group)
        warn_of_zero_filters(group)

    def scales(self) -> Factors:
        """Norms of the filters of all parameters that have a gradient; plain ones have none."""
        return filter_norms(self.param_groups)


class UnitNormSGD(GeometricSGD):
    r"""SGD with filters on the unit sphere (UN): project the gradient, step, divide by the norm.

    .. math::
        v &= g - \langle g, w \rangle w \\
        w &\leftarrow (w - r v) / |w - r v|

    for every row of a ``rows`` group; ``columns`` and ``plain`` groups take plain SGD, as in the paper
    (arXiv:1511.01754, eq. 9 and Table 1). Before it is used, momentum is carried to the current point by
    projection.

    Rows that are not of unit norm are normalized when they are added (frozen ones, and those changed from
    outside, before they are next stepped): the optimizer changes your weights. Behind a normalization layer
    that changes nothing else. Rows already of unit norm stay bit-identical. A zero row is refused; so is
    weight decay on rows, which the normalization would undo.

    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> optimizer = UnitNormSGD([w], lr=0.1)
    >>> w.tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """

    updates: ClassVar[Mapping[Geometry, Update]] = {"rows": UNIT_NORM, "columns": PLAIN, "plain": PLAIN}

    def _check_options(self, group: Group) -> None:
        super()._check_options(group)
        if group["geometry"] == "rows" and group["weight_decay"]:
            raise OptionError(
                f"weight_decay={group['weight_decay']} has no effect on unit-norm rows, the normalization "
                "undoes it: set it to 0 in 'rows' groups and keep it in the others"
            )

    def _check(self, group: Group) -> None:
        super()._check(group)
        if group["geometry"] != "rows":
            return
        for name, which in filters_without_direction(group):
            raise ZeroFilterError(
                f"{name} has rows without a direction ({which}), which cannot be kept at unit norm: "
                "initialize them, or put the parameter into a 'plain' group"
            )

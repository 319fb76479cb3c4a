"""The paper's roles, read off a model's symmetries instead of its layer types.

    its outputs rescale          rows       hidden filters
    only its inputs rescale      columns    the classifier, every one of several heads
    nothing of it rescales       plain      what stands before a tanh, between pinned scales

Which axis counts outputs the layer knows; of a matrix of one's own it is the axis whose slices grow when
their unit does. Vectors and embeddings stay plain, as in the paper.
"""

from collections.abc import Mapping

from torch import nn

from symoptim.routing import Role, Routed, embeddings_of
from symoptim.symmetry.describe import Slice, kinds
from symoptim.symmetry.spec import SymmetrySpec


def roles_from(spec: SymmetrySpec, model: nn.Module, by_layer: list[Routed]) -> Mapping[str, Role]:
    """Roles by name of the parameter.

    Args:
        spec: symmetries of the model.
        model: the network.
        by_layer: what the layer types say.

    Returns:
        A role for every parameter with two axes or more that is no embedding's.
    """
    slices: dict[str, list[Slice]] = {}
    for kind in kinds(spec):
        for one in kind.slices:
            slices.setdefault(one.tensor, []).append(one)
    embeddings = embeddings_of(model)
    found: dict[str, Role] = {}
    for names, parameter, role in by_layer:
        if parameter.ndim > 1 and id(parameter) not in embeddings:
            mine = [one for name in names for one in slices.get(name, ())]
            found.update(dict.fromkeys(names, _compared(_role(mine, role), role)))
    return found


def _compared(role: Role, by_layer: Role) -> Role:
    """A role that says so where the type of the layer says otherwise."""
    if role[:2] == by_layer[:2]:
        return role
    other = f"{by_layer.geometry} of axis 1" if by_layer.axis else by_layer.geometry
    return role._replace(reason=f"{role.reason}; by its layer {other}")


def _role(slices: list[Slice], by_layer: Role) -> Role:
    outputs = by_layer.axis if by_layer.geometry != "plain" else _growing_axis(slices)
    axes = {one.axis for one in slices}
    if outputs in axes or any(one.exponent > 0 for one in slices if axes == {None}):
        return Role("rows", outputs, "its outputs rescale")
    if 1 - outputs in axes or axes == {None}:
        return Role("columns", outputs, "only its inputs rescale")
    return Role("plain", 0, "nothing of it rescales" if not slices else "rescales along another axis")


def _growing_axis(slices: list[Slice]) -> int:
    """The axis whose slices are multiplied by their unit's scale rather than divided by it."""
    growing = {one.axis for one in slices if one.exponent > 0}
    shrinking = {one.axis for one in slices if one.exponent < 0}
    return 1 if 1 in growing - {0} or (0 in shrinking and 0 not in growing) else 0

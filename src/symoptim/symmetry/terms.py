"""Which terms of a form vary with what."""

import math
from collections.abc import Sequence

from torch import Tensor

from symoptim.symmetry.form import Deferred, Form


def require_settled(form: Form) -> None:
    """Refuse a form of which something is still put off."""
    if not form.is_settled:
        raise ValueError("settle a form before its scales are looked at")


def at_first(term: Tensor, axes: Sequence[int]) -> Tensor:
    """A term at the first place of some axes."""
    return term[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(term.dim()))]


def apart(terms: Sequence[Tensor], shared: Sequence[int] = ()) -> list[list[int]]:
    """Numbers of the terms in groups, such that each group varies with axes of its own besides shared ones.

    >>> import torch
    >>> rows, columns, both = torch.ones(2, 1), torch.ones(1, 3), torch.ones(2, 3)
    >>> apart([rows, columns, rows]), apart([rows, both])
    ([[1], [0, 2]], [[1, 0]])
    """
    groups: list[tuple[set[int], list[int]]] = []
    kept = [axis for axis in range(terms[0].dim()) if axis not in shared]
    sizes = [math.prod(term.shape[axis] for axis in kept) for term in terms]
    for number in sorted(range(len(terms)), key=lambda number: -sizes[number]):
        axes = {axis for axis in kept if terms[number].shape[axis] > 1}
        alike = [group for group in groups if group[0] & axes] if axes else groups[:1]
        groups = [group for group in groups if not any(group is other for other in alike)]
        joined = [one for _, members in alike for one in members] + [number]
        groups.append((axes.union(*(others for others, _ in alike)), joined))
    return [members for _, members in groups]


def varying(form: Form, deferred: Sequence[Deferred], axes: Sequence[int]) -> tuple[Deferred, ...]:
    """Those that are not constant along axes."""
    reduced = [axis % len(form.shape) for axis in axes]
    return tuple(
        one
        for one in deferred
        if any(one.spread.shape[axis] > 1 and form.shape[axis] > 1 for axis in reduced)
    )

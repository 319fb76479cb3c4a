"""How the elements of one tensor scale: the log-scale of each is a sum of unknowns, named by ids.

A form holds its ids in *terms*, integer tensors that broadcast to the tensor's shape: the log-scale of an
element is the sum of the unknowns its terms name there. Two ids are special:

    FIXED      the unknown that is zero: the element never changes
    ANYTHING   the element is 0 or -inf, which every scale leaves as it is

A linear layer's weight has two terms, rows ``(o, 1)`` and columns ``(1, k)``; its output has one, or two
where its input scales by row as well: behind a layer over tokens, one of tokens and one of channels.
*Addends* and *factors* are put off, because whoever comes next may not see them: see :class:`Deferred`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from symoptim.symmetry.tensors import filled, squeezed

FIXED, ANYTHING = 0, -1


@dataclass(frozen=True, slots=True)
class Form:
    """Log-scales of a tensor of that shape; without terms it is fixed."""

    shape: tuple[int, ...]
    terms: tuple[Tensor, ...] = ()
    addends: "tuple[Deferred, ...]" = ()
    factors: "tuple[Deferred, ...]" = ()

    def ids(self) -> Tensor:
        """The ids of a form with at most one term, one for every element."""
        (term,) = self.terms or (filled(len(self.shape), FIXED),)
        return term.expand(self.shape)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is put off."""
        return not self.addends and not self.factors

    @property
    def has_zeros(self) -> bool:
        """Whether elements are known to be 0 or infinite."""
        return any(bool((term == ANYTHING).any()) for term in self.terms)

    @property
    def is_zero(self) -> bool:
        """Whether all elements are known to be 0 or infinite."""
        return any(bool((term == ANYTHING).all()) for term in self.terms)

    def bare(self) -> "Form":
        """The same without what is put off."""
        return replace(self, addends=(), factors=())


@dataclass(frozen=True, slots=True)
class Deferred:
    """A summand or a factor that some operations do not see.

    A bias before batch normalization is subtracted again; the length of an embedding's row is divided out by
    a layer norm. ``spread`` numbers its values, broadcastable to the shape of the whole: along an axis where
    they do not vary it is constant. ``merge`` makes its form, of the shape of the whole, with the equations
    that takes, when somebody sees it.
    """

    spread: Tensor
    merge: Callable[[], Form]
    cases: "Cases | None" = None


@dataclass(frozen=True, slots=True)
class Cases:
    """A factor of which only the values of the network decide, for every row (axis 0), what it is.

    The rows of a mixture of experts: each has the scale of its expert. Whoever sends rows the same way again
    can do with the scale of each expert; for all others they have to be the same.
    """

    decided_by: int | None
    """Number of the value that says which case a row is; None where rows are not where they were."""
    form: Form
    """Of shape ``(cases, *shape)``."""
    tie: Callable[[Form], Form]
    """Requires that all cases scale alike; the form of the whole."""

    def moved(self, operation: Callable[[Tensor], Tensor]) -> "Cases":
        """The same for every case; which one holds for a row is known only if rows stay where they are."""
        count, *shape = self.form.shape

        def each(term: Tensor) -> Tensor:
            return squeezed(torch.stack([operation(one) for one in term.expand(self.form.shape)]))

        rows = torch.arange(shape[0])
        after = operation(rows.reshape(-1, *[1] * (len(shape) - 1)).expand(shape))
        stay = after.shape[:1] == rows.shape and bool((after.movedim(0, -1) == rows).all())
        form = Form((count, *after.shape), tuple(map(each, self.form.terms)))
        return replace(self, decided_by=self.decided_by if stay else None, form=form)


def fixed(shape: Sequence[int]) -> Form:
    """The form of a tensor that never changes."""
    return Form(tuple(shape))


def anything(shape: Sequence[int]) -> Form:
    """The form of a tensor of zeros."""
    return Form(tuple(shape), (filled(len(shape), ANYTHING),))


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

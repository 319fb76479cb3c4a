"""The unknown log-scales of a network and the equations between them, written by five verbs.

    combine       products and powers: log-scales add up
    same          sums, maxima: both sides scale alike
    const_along   reductions: the scale does not vary along these axes
    pin           anything that is not homogeneous: the scale is one
    move          shape operations: the ids take the same way as the elements

Equations are linear and homogeneous, ``sum of coefficient * unknown = 0``; their null space is the group.

What varies with rows and what varies with columns stay two terms of a form, and their equations two vectors
of them (:meth:`System.require_sum`). A layer that mixes t tokens of c channels costs t + c unknowns and
equations, not t c; only where elements are joined, cut, or known to be zero is every entry looked at.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from symoptim.symmetry.form import (
    ANYTHING,
    FIXED,
    Deferred,
    Form,
    apart,
    at_first,
    fixed,
    require_settled,
    varying,
)
from symoptim.symmetry.tensors import aligned, broadcast_shape, filled, squeezed, stacked, unique_rows

Exponent = int | Fraction


class System:
    """Unknowns ``1 .. count - 1`` (unknown 0 is zero) and rows of equations between them."""

    def __init__(self) -> None:
        """Begin with the one unknown that is fixed."""
        self.count = 1
        self.rows: list[tuple[tuple[float, ...], Tensor]] = []
        """Coefficients ``(t,)`` and ids ``(equations, t)``."""
        self.pins = 0
        """How often something that could have moved was pinned."""
        self.derived: list[Tensor] = []
        """Unknowns that stand for a power of a scale or a part of one: no good to name a unit by."""
        self.whole: list[Tensor] = []
        """Unknowns that are sums of others, of rows and of columns say: the best to name a unit by."""

    def fresh(self, *shape: int) -> Tensor:
        """Ids of new unknowns."""
        number = math.prod(shape)
        self.count += number
        return torch.arange(self.count - number, self.count).reshape(shape)

    def require(self, coefficients: Sequence[Exponent], ids: Tensor) -> None:
        """Add the equations ``sum over t of coefficients[t] * unknown[ids[..., t]] = 0``.

        One that names an element that is zero says nothing.
        """
        ids = ids.reshape(-1, len(coefficients))
        ids = ids[~(ids == ANYTHING).any(dim=1)]
        if len(ids):
            self.rows.append((tuple(map(float, coefficients)), unique_rows(ids)[0]))

    def require_sum(
        self, coefficients: Sequence[Exponent], terms: Sequence[Tensor], shared: Sequence[int] = ()
    ) -> None:
        """Require ``sum over t of coefficients[t] * terms[t] = 0`` at every entry of what they broadcast to.

        Where terms vary along different axes, rows and columns say, a sum that is zero everywhere has parts
        that are constant: all columns are as the first one, and every row and the first column sum to zero.
        These are an equation per row and one per column instead of one per entry. Along the ``shared`` axes
        constants may vary.
        """
        groups = sorted(apart(terms, shared), key=len, reverse=True)
        if len(groups) == 1 or any(bool((term == ANYTHING).any()) for term in terms):
            self.require(coefficients, stacked(terms))
            return
        own = [axis for axis in range(terms[0].dim()) if axis not in shared]
        first = [at_first(term, own) for term in terms]
        for group in groups[1:]:
            mine = [coefficients[t] for t in group]
            ids = stacked([*(terms[t] for t in group), *(first[t] for t in group)])
            self.require([*mine, *(-coefficient for coefficient in mine)], ids)
        numbers = [t for group in groups for t in group]
        ids = stacked([terms[t] if t in groups[0] else first[t] for t in numbers])
        self.require([coefficients[t] for t in numbers], ids)

    def combine(self, factors: Sequence[tuple[Form, Exponent]], shape: Sequence[int]) -> Form:
        """Form of the product of tensors to these exponents: one term for all that vary along common axes.

        Factors of rows and of columns stay two terms. An unknown for every pair would be as many as a matrix
        has entries, for each of a network's layers.
        """
        terms, exponents = _moving(factors, len(shape))
        if not terms:
            return fixed(shape)
        zeros = any(bool((term == ANYTHING).any()) for term in terms)  # one silences all others
        groups = [list(range(len(terms)))] if zeros else apart(terms)
        products = [self._product([terms[t] for t in g], [exponents[t] for t in g]) for g in groups]
        return Form(tuple(shape), tuple(products))

    def _product(self, terms: Sequence[Tensor], exponents: Sequence[Exponent]) -> Tensor:
        """Unknowns for all combinations of these terms that there are."""
        if list(exponents) == [1]:
            return terms[0]
        together = stacked(terms)
        different, where = unique_rows(together.reshape(-1, len(terms)))
        product = self.fresh(len(different))
        if 1 not in exponents:
            self.derived.append(product)
        self.require([*exponents, -1], torch.cat([different, product[:, None]], dim=1))
        product = torch.where((different == ANYTHING).any(dim=1), ANYTHING, product)
        return squeezed(product[where].reshape(together.shape[:-1]))

    def single(self, form: Form) -> Form:
        """The same log-scales, as a single term; nothing may be put off any more."""
        terms, exponents = _moving([(form, 1)], len(form.shape))
        return Form(form.shape, (self._product(terms, exponents),)) if terms else fixed(form.shape)

    def pin(self, form: Form) -> Form:
        """Require that nothing of a tensor changes."""
        terms = self.combine([(self.settle(form), 1)], form.shape).terms
        if terms:
            self.pins += any(bool((term > FIXED).any()) for term in terms)
            self.require_sum([1] * len(terms), terms)
        return fixed(form.shape)

    def same(self, one: Form, other: Form) -> Form:
        """Form of a sum or a maximum, operands broadcast."""
        shape = broadcast_shape(one.shape, other.shape)
        first, second = (self.combine([(form, 1)], form.shape) for form in (one, other))
        if first.is_zero or second.is_zero:
            left = second if first.is_zero else first
            return Form(shape, tuple(aligned(term, len(shape)) for term in left.terms))
        if first.has_zeros or second.has_zeros:
            return self._same_entries(first, second, shape)
        mine, theirs = ([aligned(term, len(shape)) for term in form.terms] for form in (first, second))
        if mine or theirs:
            self.require_sum([1] * len(mine) + [-1] * len(theirs), [*mine, *theirs])
        if len(mine) > 1 == len(theirs):
            mine, theirs = theirs, mine
        if len(mine) == 1 < len(theirs):
            self.whole += mine
        return Form(shape, tuple(mine))

    def _same_entries(self, one: Form, other: Form, shape: tuple[int, ...]) -> Form:
        """The same entry by entry: one that is zero fits any other."""
        terms = [self.single(form).terms or (filled(len(form.shape), FIXED),) for form in (one, other)]
        both = stacked([aligned(term, len(shape)) for (term,) in terms])
        self.require([1, -1], both)
        first, second = both.unbind(dim=-1)
        return Form(shape, (squeezed(torch.where(first == ANYTHING, second, first)),))

    def const_along(self, form: Form, axes: Sequence[int]) -> Form:
        """Form of a reduction over these axes, which keep size 1: the scale may not vary along them.

        Elements that are zero are left out.
        """
        tied = self.alike_along(form, axes)
        return self.combine([(tied, 1)], tied.shape)

    def alike_along(self, form: Form, axes: Sequence[int]) -> Form:
        """The same, with rows and columns left apart."""
        require_settled(form)
        count = len(form.shape)
        reduced = {axis % count for axis in axes}
        varying = [any(term.shape[axis] > 1 for axis in reduced) for term in form.terms]
        if any(varying):  # one factor that is zero silences the others
            varying = [v or bool((t == ANYTHING).any()) for v, t in zip(varying, form.terms, strict=True)]
        rest = [term for v, term in zip(varying, form.terms, strict=True) if not v]
        shape = tuple(1 if axis in reduced else size for axis, size in enumerate(form.shape))
        moving = [term for v, term in zip(varying, form.terms, strict=True) if v]
        if moving:
            rest += self._tied(moving, sorted(reduced))
        return Form(shape, tuple(rest))

    def _tied(self, terms: Sequence[Tensor], reduced: Sequence[int]) -> list[Tensor]:
        """Require that the sum of terms does not vary along axes; the terms at one place of them."""
        if len(apart(terms, reduced)) > 1 and not any(bool((term == ANYTHING).any()) for term in terms):
            first = [at_first(term, reduced) for term in terms]
            # From one matrix of a stack to the next all rows change by one number, columns by its inverse.
            self.require_sum([1] * len(terms) + [-1] * len(terms), [*terms, *first], reduced)
            return first
        together = stacked(terms)
        kept = [axis for axis in range(together.dim() - 1) if axis not in reduced]
        table = together.permute(*kept, *reduced, together.dim() - 1)
        table = table.reshape(*table.shape[: len(kept)], -1, len(terms))
        zero = (table == ANYTHING).any(dim=-1)
        place = (~zero).long().argmax(dim=-1)[..., None, None].expand(*table.shape[:-2], 1, len(terms))
        reference = table.gather(-2, place)
        equations = torch.cat([table, reference.expand_as(table)], dim=-1)[~zero]
        self.require([1] * len(terms) + [-1] * len(terms), equations)
        back = [1 if axis in reduced else together.shape[axis] for axis in range(together.dim() - 1)]
        return [reference[..., 0, t].reshape(back) for t in range(len(terms))]

    def settle(self, form: Form) -> Form:
        """Merge what was put off: whoever comes next sees all of it."""
        if form.is_settled:
            return form
        factors = [(factor.merge(), 1) for factor in form.factors]
        whole = self.combine([(form.bare(), 1), *factors], form.shape)
        for addend in form.addends:
            whole = self.same(whole, addend.merge())
        return whole

    def blind_to(self, form: Form, axes: Sequence[int]) -> Form:
        """Form as seen by an operation that subtracts what is constant along these axes."""
        return self.settle(replace(form, addends=varying(form, form.addends, axes)))

    def normalized_by(self, form: Form, axes: Sequence[int]) -> Form:
        """Form as seen by an operation that divides by what is constant along these axes.

        With addends left a factor is one of the first part of a sum, and cannot be divided out.
        """
        if form.addends:
            return self.settle(form)
        return self.settle(replace(form, factors=varying(form, form.factors, axes)))


def _moving(factors: Sequence[tuple[Form, Exponent]], axes: int) -> tuple[list[Tensor], list[Exponent]]:
    """Terms of a product that are not fixed, and the exponent of each."""
    terms: list[Tensor] = []
    exponents: list[Exponent] = []
    for form, exponent in factors:
        require_settled(form)
        moving = [term for term in form.terms if not bool((term == FIXED).all())]
        terms += [aligned(term, axes) for term in moving]
        exponents += [exponent] * len(moving)
    return terms, exponents


def move(form: Form, operation: Callable[[Tensor], Tensor]) -> Form:
    """Form of a tensor whose elements were moved about: the ids take the same way.

    >>> rows = Form((2, 3), (torch.tensor([[1], [2]]),))
    >>> move(rows, lambda tensor: tensor.t()).terms
    (tensor([[1, 2]]),)
    """

    def moved(term: Tensor) -> Tensor:
        return squeezed(operation(term.expand(form.shape)))

    shape = tuple(operation(filled(len(form.shape), FIXED).expand(form.shape)).shape)

    def later(deferred: Deferred) -> Deferred:
        spread, cases = moved(deferred.spread), deferred.cases
        if cases is None:
            return Deferred(spread, lambda: move(deferred.merge(), operation))
        elsewhere = cases.moved(operation)
        return Deferred(spread, lambda: elsewhere.tie(elsewhere.form), elsewhere)

    terms = tuple(map(moved, form.terms))
    return Form(shape, terms, tuple(map(later, form.addends)), tuple(map(later, form.factors)))

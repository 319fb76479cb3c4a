"""Joining, cutting and looking up: where elements go is known, or their scale may not depend on it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from symoptim.symmetry.form import ANYTHING, Deferred, Form, anything, fixed
from symoptim.symmetry.rules.arithmetic import lifted
from symoptim.symmetry.rules.registry import CannotTell, Context, Result, rule
from symoptim.symmetry.system import move
from symoptim.symmetry.tensors import squeezed


@rule("cat", "concat", "concatenate", sees_deferred=True)
def _cat(context: Context, forms: Sequence[Form], axis: int = 0) -> Result:
    there = [form for form in forms if form.shape != (0,)]  # torch lets empty ones pass

    def joined(parts: Sequence[Form]) -> Form:
        return _joined(context, torch.cat([context.system.single(part).ids() for part in parts], dim=axis))

    def alone(number: int, part: Deferred, others: Callable[[Sequence[int]], Form]) -> Deferred:
        """What is put off in one of them, of which the others have nothing."""
        spread = [torch.full(form.shape, -1) for form in there]
        spread[number] = part.spread.expand(there[number].shape)
        forms = [others(form.shape) for form in there]
        return Deferred(
            squeezed(torch.cat(spread, dim=axis)),
            lambda: joined([*forms[:number], part.merge(), *forms[number + 1 :]]),
        )

    addends = [alone(k, part, anything) for k, form in enumerate(there) for part in form.addends]
    factors = [alone(k, part, fixed) for k, form in enumerate(there) for part in form.factors]
    bare = joined([form.bare() for form in there])
    return replace(bare, addends=tuple(addends), factors=tuple(factors))


@rule("stack")
def _stack(context: Context, forms: Sequence[Form], axis: int = 0) -> Result:
    return _joined(context, torch.stack([context.system.single(form).ids() for form in forms], dim=axis))


def _joined(context: Context, ids: Tensor) -> Form:
    return Form(context.shape, (squeezed(ids),))


@rule("slice_scatter", "select_scatter", "diagonal_scatter")
def _scatter(context: Context, form: Form, other: Form, *arguments: object, **keywords: object) -> Result:
    whole, part = (context.system.single(one).ids() for one in (form, other))
    return _joined(context, context.operation.function(whole.clone(), part, *arguments, **keywords))


@rule("copy")
def _copy(context: Context, form: Form, other: Form, *_: object) -> Result:
    return move(context.system.single(other), lambda ids: ids.expand(context.shape))


@rule("fill")
def _fill(context: Context, form: Form, value: object) -> Result:
    return move(lifted(value), lambda ids: ids.expand(context.shape))


@rule("constant_pad_nd", "pad")
def _pad(context: Context, form: Form, around: Sequence[int], *rest: object, **keywords: object) -> Result:
    words = [one for one in (*rest, keywords.get("mode")) if isinstance(one, str)]
    numbers = [one for one in (*rest, keywords.get("value")) if isinstance(one, int | float)]
    if any(word != "constant" for word in words):
        return _mixed(context, form, around)
    if numbers and numbers[0] not in (0, -math.inf):
        context.system.pin(form)
        return fixed(context.shape)
    ids = torch.nn.functional.pad(context.system.single(form).ids(), list(around), value=ANYTHING)
    return _joined(context, ids)


@rule(*(f"{kind}_pad{axes}d" for kind in ("reflection", "replication") for axes in (1, 2, 3)))
def _mixed(context: Context, form: Form, around: Sequence[int]) -> Form:
    """Places mix: they are mirrored or repeated."""
    tied = context.system.const_along(form, range(-(len(around) // 2), 0))
    return Form(context.shape, tied.terms)


@rule("embedding")
def _embedding(context: Context, weight: Form, places: Form, *_: object, **__: object) -> Result:
    known = context.value(context.operation.arguments[1])
    if known is not None:
        return move(weight, lambda ids: ids[known.cpu()])
    system, shape = context.system, context.shape
    lengths = tuple(term for term in weight.terms if term.shape[1] == 1 and term.shape[0] > 1)
    others = tuple(term for term in weight.terms if term.shape[1] > 1 or term.shape[0] == 1)
    row = system.const_along(Form(weight.shape, others), [0])
    number = math.prod(shape[:-1])

    def merge() -> Form:
        """Which row is looked up is not known: all have to scale alike."""
        tied = system.const_along(Form(weight.shape, lengths), [0])
        return Form(shape, tuple(term.reshape([1] * len(shape)) for term in tied.terms))

    spread = torch.arange(number).reshape(*shape[:-1], 1)
    factors = (Deferred(spread, merge),) if lengths else ()
    return Form(shape, tuple(_widened(row, shape, 0, 1)), factors=factors)


@rule("index", "_unsafe_index", sees_deferred=True)
def _index(context: Context, form: Form, places: Sequence[Form | None]) -> Result:
    known = [context.value(place) for place in context.operation.arguments[1]]
    if all((one is None) == (place is None) for one, place in zip(known, places, strict=True)):
        where = [None if one is None else one.cpu() for one in known]
        return move(form, lambda ids: context.operation.function(ids, where))
    axes = [axis for axis, place in enumerate(places) if place is not None]
    before, after = axes[0], len(form.shape) - axes[-1] - 1
    looked_up = len(context.shape) - before - after
    if len(axes) != axes[-1] - before + 1 or looked_up != max(len(place.shape) for place in places if place):
        raise CannotTell  # places of axes that are apart, or a mask over several axes
    tied = context.system.alike_along(context.system.settle(form), axes)
    return Form(context.shape, tuple(_widened(tied, context.shape, before, after)))


def _widened(tied: Form, shape: tuple[int, ...], before: int, after: int) -> Iterator[Tensor]:
    """Terms of a result whose first and last axes are those of a form, and all between looked up."""
    for term in tied.terms:
        last = term.shape[len(term.shape) - after :] if after else ()
        yield term.reshape(*term.shape[:before], *[1] * (len(shape) - before - after), *last)


@rule("index_select", sees_deferred=True)
def _index_select(context: Context, form: Form, axis: int, places: Form) -> Result:
    known = context.value(context.operation.arguments[2])
    if known is not None:
        return move(form, lambda ids: ids.index_select(axis, known.cpu()))
    tied = context.system.const_along(context.system.settle(form), [axis])
    return Form(context.shape, tied.terms)


@rule("gather", sees_deferred=True)
def _gather(context: Context, form: Form, axis: int, places: Form, **_: object) -> Result:
    known = context.value(context.operation.arguments[2])
    if known is not None:
        return move(form, lambda ids: ids.gather(axis, known.cpu()))
    tied = context.system.const_along(context.system.settle(form), [axis])
    if any(
        size not in (1, wanted)
        for term in tied.terms
        for size, wanted in zip(term.shape, context.shape, strict=True)
    ):
        raise CannotTell  # it also cuts other axes
    return Form(context.shape, tied.terms)


@rule("index_put", "_unsafe_index_put")
def _index_put(
    context: Context,
    form: Form,
    places: Sequence[Form | None],
    values: Form,
    accumulate: bool = False,
    *_: object,
) -> Result:
    system = context.system
    if math.prod(values.shape) == 1:  # the same for all places, wherever they are
        return system.same(form, move(values, lambda ids: ids.reshape(())))
    axes = [axis for axis, place in enumerate(places) if place is not None]
    if axes != list(range(len(axes))) or any(len(place.shape) > 1 for place in places if place):
        raise CannotTell  # also of a mask over several axes, whose order of elements is not known
    tied = system.const_along(form, axes)
    kept = len(form.shape) - len(axes)
    lead = range(max(0, len(values.shape) - kept))
    written = system.const_along(values, lead) if lead else values
    flat = move(written, lambda ids: ids.reshape(ids.shape[len(lead) :]))
    both = system.same(tied, flat)
    return Form(form.shape, system.const_along(both, axes).terms)


@rule("scatter_reduce", "index_reduce")
def _scatter_reduce(
    context: Context, form: Form, axis: int, places: Form, values: Form, reduction: str, **_: object
) -> Result:
    """Sums, means and extrema of what arrives at a place, with what was there before or without it."""
    if reduction == "prod":
        raise CannotTell  # how many arrive is not known
    return _scattered(context, form, axis, places, values)


@rule("scatter_add", "index_add", "scatter", "index_copy")
def _scattered(
    context: Context, form: Form, axis: int, places: Form, values: object, alpha: float = 1
) -> Result:
    system = context.system
    tied = system.const_along(form, [axis])
    if not isinstance(values, Form):
        return Form(form.shape, system.same(tied, lifted(values)).terms)
    written = system.const_along(values, [axis])
    if any(
        term.shape[other] > 1
        for term in written.terms
        for other in range(len(form.shape))
        if form.shape[other] != values.shape[other]
    ):
        raise CannotTell
    both = system.same(tied, Form(tied.shape, written.terms))
    return Form(form.shape, both.terms)

"""Sums, products and powers."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch

from symoptim.symmetry.form import Deferred, Form, anything, fixed, varying
from symoptim.symmetry.rules.registry import Context, Result, rule
from symoptim.symmetry.system import Exponent, move
from symoptim.symmetry.tensors import aligned


def plus(context: Context, form: Form, other: Form) -> Form:
    """Form of a sum. A summand that is broadcast, such as a bias, is merged when somebody sees it.

    So are those that scores of attention have from before: a key's bias is the same for all keys.
    """
    if form.shape != context.shape and form.addends:
        form = move(form, lambda ids: ids.expand(context.shape))
    if form.shape != context.shape or math.prod(other.shape) == math.prod(form.shape):
        (first, kept), (second, more) = (_last_axis_seen(context, one) for one in (form, other))
        return replace(context.system.same(first, second), addends=(*kept, *more))
    settled = context.system.settle(other)
    form = context.system.settle(form) if form.factors else form
    axes = len(form.shape)
    spread = aligned(torch.arange(math.prod(other.shape)).reshape(other.shape), axes)
    merged = Form(form.shape, tuple(aligned(term, axes) for term in settled.terms))
    return Form(form.shape, form.terms, (*form.addends, Deferred(spread, lambda: merged)))


def _last_axis_seen(context: Context, form: Form) -> tuple[Form, tuple[Deferred, ...]]:
    """A form with what varies along the last axis merged, and the summands that do not, if they are few."""
    seen = varying(form, form.addends, [-1]) if form.shape else form.addends
    kept = tuple(one for one in form.addends if not any(one is other for other in seen))
    if form.shape != context.shape or len(kept) > MOST_KEPT:
        return context.system.settle(form), ()
    return context.system.settle(replace(form, addends=seen)), kept


MOST_KEPT = 4
"""Summands that a sum takes over: along a deep network they would be merged again and again."""


@rule("add", "sub", "rsub", sees_deferred=True)
def _add(context: Context, one: Any, other: Any, alpha: float = 1) -> Result:
    if isinstance(one, Form) and isinstance(other, Form):
        if alpha == 1 and _is_of_mean(context):  # a bias is its own mean
            one, other = _without_common(one, other)
        large, small = (one, other) if math.prod(one.shape) >= math.prod(other.shape) else (other, one)
        return plus(context, large, small)
    form, number = (one, other) if isinstance(one, Form) else (other, one)
    if number == 0:
        return form
    form = context.system.settle(form)
    return form if context.is_guard(number * alpha, form) else context.system.pin(form)


def _is_of_mean(context: Context) -> bool:
    """Whether an operation is the difference of a value and its mean over windows, to the digit."""
    if context.operation.name == "add" or len(context.operation.references()) != 2:
        return False
    one, other = context.operation.references()
    pairs = ((context.producers.get(one), other), (context.producers.get(other), one))
    return any(
        mean is not None and mean.name.startswith("avg_pool") and mean.references() == [value]
        for mean, value in pairs
    )


def _without_common(one: Form, other: Form) -> tuple[Form, Form]:
    """Both sides of a difference without the summands that both have."""
    mine, theirs = ({id(addend) for addend in form.addends} for form in (one, other))
    return (
        replace(one, addends=tuple(addend for addend in one.addends if id(addend) not in theirs)),
        replace(other, addends=tuple(addend for addend in other.addends if id(addend) not in mine)),
    )


@rule("maximum", "minimum", "fmax", "fmin")
def _maximum(context: Context, one: Form, other: Form) -> Result:
    return context.system.same(one, other)


def pinned(context: Context, *arguments: object) -> Form:
    """Form of what is made of arguments that cannot scale."""
    for argument in arguments:
        if isinstance(argument, Form):
            context.system.pin(argument)
    return fixed(context.shape)


@rule("mul", sees_deferred=True)
def _mul(context: Context, one: object, other: object) -> Result:
    return _product(context, (one, 1), (other, 1))


@rule("div", "true_divide", sees_deferred=True)
def _div(context: Context, one: object, other: object, **keywords: object) -> Result:
    if keywords.get("rounding_mode"):
        return pinned(context, one, other)
    return _product(context, (one, 1), (other, -1))


def _product(context: Context, *factors: tuple[Any, Exponent]) -> Form:
    forms = [(factor, exponent) for factor, exponent in factors if isinstance(factor, Form)]
    if len(forms) == 1 and forms[0][1] == 1:  # times a number: what is put off stays so
        return forms[0][0]
    passed: list[Deferred] = []
    settled: list[tuple[Form, Exponent]] = []
    for form, exponent in forms:
        if exponent == 1 and not form.addends:  # a factor of a factor is one of the product
            passed += [_spread_out(factor, form.shape, context.shape) for factor in form.factors]
            form = form.bare()
        settled.append((context.system.settle(form), exponent))
    product = context.system.combine(settled, context.shape)
    if passed:
        context.system.derived += product.terms
    return replace(product, factors=tuple(passed))


def _spread_out(factor: Deferred, before: tuple[int, ...], shape: tuple[int, ...]) -> Deferred:
    """The same factor of what is broadcast to a shape."""

    def merge() -> Form:
        return Form(shape, tuple(aligned(term, len(shape)) for term in factor.merge().terms))

    return Deferred(aligned(factor.spread, len(shape)), merge, factor.cases if before == shape else None)


@rule("pow")
def _pow(context: Context, base: object, exponent: object) -> Result:
    if not isinstance(base, Form) or not isinstance(exponent, int | float):
        return pinned(context, base, exponent)
    if exponent == 0:
        return fixed(context.shape)  # one, even of zero
    return context.system.combine([(base, Fraction(exponent))], context.shape)


@rule("sqrt")
def _sqrt(context: Context, form: Form) -> Result:
    return context.system.combine([(form, Fraction(1, 2))], context.shape)


@rule("rsqrt")
def _rsqrt(context: Context, form: Form) -> Result:
    return context.system.combine([(form, Fraction(-1, 2))], context.shape)


@rule("reciprocal")
def _reciprocal(context: Context, form: Form) -> Result:
    return context.system.combine([(form, -1)], context.shape)


@rule("square")
def _square(context: Context, form: Form) -> Result:
    return context.system.combine([(form, 2)], context.shape)


@rule("where", sees_deferred=True)
def _where(context: Context, condition: Form, one: object, other: object) -> Result:
    system = context.system
    condition = system.settle(condition)
    for place, (form, value) in enumerate([(other, one), (one, other)], start=1):
        number = _number(context, value, context.operation.arguments[place])
        if number <= -LARGE and isinstance(form, Form) and form.shape == context.shape and form.addends:
            return _masked_fill(context, form, condition, number)
    one, other = (
        lifted(system.settle(value) if isinstance(value, Form) else value) for value in (one, other)
    )
    chosen = system.same(one, other)
    return system.same(chosen, anything(context.shape))  # only to have the shape of the result


def _number(context: Context, value: object, argument: object) -> float:
    """A number, or what a tensor always is at its largest; infinity where that is not known."""
    known = context.value(argument)
    if known is not None and known.numel():
        return float(known.max())
    return value if isinstance(value, int | float) else math.inf


def lifted(value: Any) -> Form:
    """A tensor or a number as a form; zero and infinity fit any scale."""
    if isinstance(value, Form):
        return value
    return anything(()) if value == 0 or math.isinf(value) else fixed(())


LARGE = 1e30
"""Nothing that is added to a number of this size is seen."""


@rule("masked_fill", sees_deferred=True)
def _masked_fill(context: Context, form: Form, mask: Form, value: object) -> Result:
    if isinstance(value, int | float) and value <= -LARGE and form.shape == context.shape:
        # Minus infinity stays what it is, whatever is added to it; by a factor only if it is truly infinite.
        return form if math.isinf(value) else _pinned_but_for_addends(context, form)
    filled = context.system.same(context.system.settle(form), lifted(value))
    return Form(context.shape, filled.terms)


def _pinned_but_for_addends(context: Context, form: Form) -> Form:
    return replace(context.system.pin(replace(form, addends=())), addends=form.addends)

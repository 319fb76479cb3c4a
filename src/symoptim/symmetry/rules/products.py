"""Attention, and other products of more than two factors."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from symoptim.symmetry.form import Cases, Deferred, Form
from symoptim.symmetry.rules.contractions import contract
from symoptim.symmetry.rules.registry import CannotTell, Context, Result, rule
from symoptim.symmetry.system import System, move
from symoptim.symmetry.tensors import broadcast_shape


@rule("softmax", "_softmax", "_safe_softmax", sees_deferred=True)
def _softmax(context: Context, form: Form, axis: int, *_: object, **__: object) -> Result:
    # What is added to all scores alike makes no difference: a key's bias, for one.
    return context.system.pin(context.system.blind_to(form, [axis]))


@rule("scaled_dot_product_attention", sees_deferred=True)
def _attention(
    context: Context,
    query: Form,
    key: Form,
    value: Form,
    mask: Form | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: object = None,
    enable_gqa: bool = False,
) -> Result:
    system = context.system
    if mask is not None:
        system.pin(mask)
    query, value = system.settle(query), system.settle(value)
    key = system.blind_to(key, [-2])  # softmax(q (k + c)) = softmax(q k)
    query, key, value = (system.const_along(form, [-2]) for form in (query, key, value))
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = (move(form, lambda ids: ids.repeat_interleave(times, -3)) for form in (key, value))
    scores = broadcast_shape(query.shape, key.shape)  # heads may share a key
    system.pin(system.combine([(query, 1), (key, 1)], scores))
    return Form(context.shape, value.terms)


@rule("_trilinear")
def _trilinear(
    context: Context,
    one: Form,
    two: Form,
    three: Form,
    first: Sequence[int],
    second: Sequence[int],
    third: Sequence[int],
    summed: Sequence[int],
    *_: object,
) -> Result:
    """A product of three, each with new axes at these places, summed over some: ``nn.Bilinear``."""
    forms: list[Form] = []
    for form, places in ((one, first), (two, second), (three, third)):
        for axis in places:
            form = move(form, lambda ids, axis=axis: ids.unsqueeze(axis))
        forms.append(form)
    shape = broadcast_shape(*(form.shape for form in forms))
    terms = [term for form in forms for term in form.terms]
    tied = context.system.const_along(Form(shape, tuple(terms)), summed)
    return move(tied, lambda ids: ids.reshape(context.shape))


@rule("_grouped_mm", "transformers::grouped_mm_fallback", sees_deferred=True)
def _grouped(
    context: Context,
    inputs: Form,
    weights: Form,
    offs: Form | None = None,
    bias: Form | None = None,
    **_: object,
) -> Result:
    """Rows ``(t, k)`` times matrices ``(e, k, n)``; values decide which expert e a row t goes to."""
    if bias is not None or offs is None or len(inputs.shape) != 2 or len(weights.shape) != 3:
        raise CannotTell
    system, operation = context.system, context.operation
    ends = operation.keywords["offs"] if "offs" in operation.keywords else operation.arguments[2]
    row = system.const_along(_by_case(system, inputs, ends.index), [1])
    product = contract(system, row, system.settle(weights))

    def tie(form: Form) -> Form:
        """Whoever does not send rows the same way sees rows of any expert."""
        tied = system.const_along(form, [0])
        return Form(form.shape[1:], tuple(term.squeeze(0) for term in tied.terms))

    spread = torch.arange(math.prod(context.shape)).reshape(context.shape)
    cases = Cases(ends.index, Form((product.shape[0], *context.shape), product.terms), tie)
    return Form(context.shape, factors=(Deferred(spread, lambda: tie(cases.form), cases),))


def _by_case(system: System, form: Form, decided_by: int) -> Form:
    """A form with the cases as a first axis, where rows were sent the same way before; else of size 1."""
    mine = [one.cases.form for one in form.factors if one.cases and one.cases.decided_by == decided_by]
    if form.addends or not mine:
        return move(system.settle(form), lambda ids: ids.unsqueeze(0))
    rest = tuple(one for one in form.factors if not one.cases or one.cases.decided_by != decided_by)
    plain = move(system.settle(replace(form, factors=rest)), lambda ids: ids.unsqueeze(0))
    shape = broadcast_shape(plain.shape, *(one.shape for one in mine))
    return Form(shape, tuple(term for one in (plain, *mine) for term in one.terms))

"""Softmax and attention: scores are pinned, but for what is the same for all of them."""

from typing import Any

from symoptim.symmetry.form import Form
from symoptim.symmetry.rules.registry import Context, Result, rule
from symoptim.symmetry.system import move
from symoptim.symmetry.tensors import broadcast_shape


@rule("softmax", "_softmax", "_safe_softmax", sees_deferred=True)
def _softmax(context: Context, form: Form, axis: int, *_: Any, **__: Any) -> Result:
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
    scale: Any = None,
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

"""Sums, means, maxima and norms over axes: the scale may not vary along them."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from symoptim.symmetry.form import Form, fixed
from symoptim.symmetry.rules.registry import CannotTell, Context, Result, rule
from symoptim.symmetry.system import move


def reduced_axes(form: Form, axes: Any, keywords: Mapping[str, Any] | None = None) -> list[int]:
    """Axes of a reduction, by position or by name; none, an empty list, or a flag in their place are all."""
    axes = (keywords or {}).get("dim", axes)
    if axes is None or axes == [] or isinstance(axes, bool):
        return list(range(len(form.shape)))
    return [axes] if isinstance(axes, int) else list(axes)


def reduce(context: Context, form: Form, axes: Sequence[int]) -> Form:
    """Form of a reduction in the shape of the result, whether it keeps the reduced axes or not."""
    tied = context.system.const_along(form, axes)
    return move(tied, lambda ids: ids.reshape(context.shape))


@rule("sum", "mean", "amax", "amin", "nansum")
def _plain(context: Context, form: Form, axes: object = None, *_: object, **keywords: object) -> Result:
    return reduce(context, form, reduced_axes(form, axes, keywords))


@rule("max", "min", "median")
def _with_indices(
    context: Context, form: Form, axis: object = None, *_: object, **keywords: object
) -> Result:
    axis = keywords.get("dim", axis)
    if isinstance(axis, Form):
        return context.system.same(form, axis)
    found = reduce(context, form, reduced_axes(form, axis))
    return found if isinstance(context.operation.result, Tensor) else (found, fixed(context.shape))


@rule("linalg_vector_norm", "norm")
def _norm(
    context: Context, form: Form, order: object = 2, axes: object = None, *_: object, **keywords: object
) -> Result:
    if order == 0:
        raise CannotTell
    return reduce(context, form, reduced_axes(form, axes, keywords))


@rule("var", "std")
def _var(context: Context, form: Form, axes: object = None, *_: object, **keywords: object) -> Result:
    found = reduce(context, form, reduced_axes(form, axes, keywords))
    return found if context.operation.name == "std" else context.system.combine([(found, 2)], found.shape)


@rule("var_mean", "std_mean")
def _var_mean(context: Context, form: Form, axes: object = None, *_: object, **keywords: object) -> Result:
    mean = reduce(context, form, reduced_axes(form, axes, keywords))
    spread = mean
    if context.operation.name == "var_mean":
        spread = context.system.combine([(mean, 2)], mean.shape)
    return spread, mean


@rule("cumsum", "cummax", "cummin")
def _cumulative(context: Context, form: Form, axis: int, *_: object, **__: object) -> Result:
    tied = context.system.const_along(form, [axis])
    found = Form(form.shape, tied.terms)
    return found if context.operation.name == "cumsum" else (found, fixed(form.shape))


@rule("sort", "topk")
def _sorted(context: Context, form: Form, *arguments: Any, **keywords: Any) -> Result:
    position = 1 if context.operation.name == "topk" else 0
    axis = keywords.get("dim", arguments[position] if len(arguments) > position else -1)
    tied = context.system.const_along(form, [axis])
    return Form(context.shape, tied.terms), fixed(context.shape)


@rule("argmax", "argmin")
def _place(context: Context, form: Form, axis: object = None, *_: object, **__: object) -> Result:
    context.system.const_along(form, reduced_axes(form, axis))
    return fixed(context.shape)

"""Complex numbers, as rotary embeddings and Fourier transforms use them: they have one positive scale."""

from collections.abc import Sequence

from symoptim.symmetry.form import Form
from symoptim.symmetry.rules.registry import Context, Result, rule
from symoptim.symmetry.system import move


@rule("view_as_complex")
def _joined(context: Context, form: Form) -> Result:
    """Pairs along the last axis become one number: both parts scale alike."""
    tied = context.system.alike_along(form, [-1])
    return move(tied, lambda ids: ids.squeeze(-1))


@rule("view_as_real")
def _apart(context: Context, form: Form) -> Result:
    return Form(context.shape, tuple(term.unsqueeze(-1) for term in form.terms))


@rule("complex")
def _complex(context: Context, real: Form, imaginary: Form) -> Result:
    return context.system.same(real, imaginary)


@rule("polar")
def _polar(context: Context, length: Form, angle: Form) -> Result:
    context.system.pin(angle)
    return context.system.combine([(length, 1)], context.shape)


@rule("_fft_r2c", "_fft_c2c", "_fft_c2r")
def _fourier(context: Context, form: Form, axes: Sequence[int], *_: object) -> Result:
    """Sums over these axes with fixed weights, for every frequency."""
    tied = context.system.const_along(form, axes)
    return Form(context.shape, tied.terms)

"""Proof by trial: random elements of a group act in place on copies of a model, and outputs are compared.

In float64. The second check needs one backward pass for all generators at once: if outputs do not change
along a generator, the derivative of any loss of them along it is zero, and the charges of weights times
gradients vanish (Noether).

What cannot be computed in float64 is tried in the model's own precision, with factors that are powers of
two: these change no digit, so outputs must agree as they do in float64.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from symoptim.errors import SymmetryError, TraceError, first_few
from symoptim.modules import mode_change, require_module
from symoptim.symmetry.calls import prepared, unpacked
from symoptim.symmetry.failures import by_name, described
from symoptim.symmetry.limits import is_out_of_memory
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import arguments_of
from symoptim.symmetry.trials import Outputs, Trials, powers_of_two
from symoptim.symmetry.variations import Arguments, OtherCall, are_equal, other_calls, tensors_of

PASSING = 1e-8
"""Errors below count as rounding: deep networks magnify that of float64."""
NEARBY = 0.1
"""Log-scales of the elements that tell whether eps is a guard: factors within 10 %."""
EPS_TOLERANCE = 1e-2
"""Change of outputs by these elements up to which it is one."""
NOT_THE_DERIVATIVE = (
    "charges do not vanish though outputs stay: the backward pass is not the derivative of the forward pass "
    "(a straight-through estimator, padding_idx, a detached tensor)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """What was measured: errors are relative, zero but for rounding if every generator is a symmetry."""

    output_error: float
    """Largest change of an output by random elements, with a negligible eps in all normalizations."""
    eps_error: float
    """The same with every eps as it is, on the example."""
    eps_nearby: float
    """The same for elements that change no scale by more than 10 %: how much of its sum eps is."""
    evaluation_error: float
    """Largest change after ``.eval()``, of a model in training mode; zero for others."""
    noether_residual: float
    """Largest charge of a generator, by one backward pass; of those that move no running statistics.

    NaN if none was measured: the model cannot be differentiated, or no gradient reaches its weights.
    """
    unknown: Mapping[str, int]
    pinned: Mapping[str, int]
    approximate: Mapping[str, int]
    tried: tuple[str, ...] = ()
    """Inputs that the model was called with, in words."""
    unseen: tuple[str, ...] = ()
    """Paths through the model that neither discovery nor the trial has seen, in words."""
    notes: tuple[str, ...] = ()
    """What else there is to know about the trial."""
    reason: str = ""
    """Why the group could not be tried."""
    passing: float = PASSING
    """Errors below count as rounding."""
    eps_tolerance: float = EPS_TOLERANCE
    """``eps_nearby`` up to which eps is a guard."""
    spread: float = 2.0
    """Log-scales of the elements."""
    differentiable: bool = True
    """Whether the backward pass is the derivative of the forward pass, so that charges count."""

    @property
    def without_eps(self) -> bool:
        """Whether all changes are rounding, so that no eps matters."""
        charged = self.differentiable and self.noether_residual >= self.passing
        changed = max(self.output_error, self.evaluation_error) >= self.passing
        return not (self.reason or changed or charged)

    @property
    def holds(self) -> bool:
        """Whether it holds, and no eps is more than a guard.

        That is: with the listed eps out of the way all changes are rounding, and with them as they are
        scales within 10 % change outputs by less than ``eps_tolerance``. Then eps is a small part of what it
        is added to, at these weights and inputs. Larger scales may change outputs by more: ``eps_error``.
        """
        return self.without_eps and self.eps_nearby < self.eps_tolerance

    @property
    def exact(self) -> bool:
        """Whether it holds with every eps as it is: outputs change by rounding alone."""
        return self.holds and self.eps_error < self.passing

    def __str__(self) -> str:
        """Return the verdict, and the figures it rests on."""
        if self.reason:
            return f"CANNOT BE TRIED: {self.reason}"
        charge = "" if math.isnan(self.noether_residual) else f", largest charge {self.noether_residual:.1e}"
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        if self.holds and not self.exact and self.approximate:
            verdict = "holds up to eps"
        without = " with eps removed" if self.approximate else ""
        said = [f"{verdict}: outputs of rescaled copies differ by {self.output_error:.1e}{without}{charge}"]
        if self.evaluation_error >= self.passing > self.output_error:
            said.append(
                f"in training mode only: after .eval() outputs differ by {self.evaluation_error:.1e}, for "
                "running statistics do not follow"
            )
        if self.approximate:
            too_large = "eps is too large for a guard: " if self.without_eps and not self.holds else ""
            said.append(
                f"{too_large}with eps as it is outputs change by {self.eps_error:.1e} for scales up to "
                f"e^{self.spread:g}, by {self.eps_nearby:.1e} within 10 %"
            )
        said += [f"tried on {len(self.tried)} inputs ({', '.join(self.tried)})", *self.notes]
        said += [f"not seen: {', '.join(self.unseen)}"] if self.unseen else []
        return "; ".join(said)


def certify(
    spec: SymmetrySpec,
    model: nn.Module,
    example_inputs: tuple[object, ...],
    keywords: Mapping[str, object] | None = None,
    *,
    elements: int = 2,
    spread: float = 2.0,
    eps_tolerance: float = EPS_TOLERANCE,
    draw: bool = True,
) -> Certificate:
    """Try a group on deep copies of a model, which is left as it is.

    Copies are acted on in place, as :meth:`.SymmetrySpec.rescale_` does. Each is called twice with the same
    inputs, so that what a call leaves behind counts too, and once more after ``.eval()`` if the model is in
    training mode. Besides the example, inputs of other values and other lengths are tried, if the model
    takes them.

    Args:
        spec: the group.
        model: the model it was found on, in the same mode.
        example_inputs: positional arguments of a call, with values that matter now.
        keywords: its other arguments.
        elements: number of random elements.
        spread: log-scales of generators are up to this large.
        eps_tolerance: change of outputs by scales within 10 %, with eps as it is, from which on the group
            does not hold at these weights and inputs: eps is then more than a guard against zero.
        draw: whether to try inputs of its own; not where they take paths that were vouched for.

    Returns:
        What was measured.

    Raises:
        SymmetryError: the group is of another model.
        TraceError: the model returns no tensors that can be seen.

    >>> from symoptim.symmetry.discover import discover
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> x = torch.rand(5, 3)
    >>> certificate = certify(discover(model, (x,)), model, (x,))
    >>> certificate.holds, certificate.tried
    (True, ('the example', 'other values', 'length 9 for 5', 'length 4 for 5'))
    """
    model, positional = require_module(model), arguments_of(example_inputs)
    there = spec.require_model(model)
    example = positional, prepared(model, positional, keywords)
    visible, positional, named = unpacked(model, *example)
    if any(tensor.device.type == "meta" for tensor in there.values()):
        return _not_tried(spec, "the model has no values (meta device): certify a copy that has some")
    calls, notes = _calls(spec, model, (positional, named), draw=draw)
    drawn = [spec.random(seed=seed, spread=spread) for seed in range(elements)]
    failed = ""
    for wide in (True, False):
        try:
            certificate = _measured(Trials(spec, visible, wide=wide), calls, drawn, eps_tolerance)
        except TraceError:
            raise
        except SymmetryError as failure:
            return _not_tried(spec, str(failure))
        except Exception as failure:  # of the model: on copies, in float64, or on these inputs
            if is_out_of_memory(failure):
                raise
            failed = failed or described(failure)
        else:
            if failed:
                notes = [f"in the model's own precision, by powers of two, not float64 ({failed})", *notes]
            return replace(certificate, spread=spread, notes=(*notes, *certificate.notes))
    return _not_tried(spec, f"{failed}{by_name(example[0])}")


def _not_tried(spec: SymmetrySpec, reason: str) -> Certificate:
    """A certificate of nothing."""
    return Certificate(
        output_error=math.nan,
        eps_error=math.nan,
        eps_nearby=math.nan,
        evaluation_error=math.nan,
        noether_residual=math.nan,
        unknown=spec.unknown,
        pinned=spec.pinned,
        approximate=spec.approximate,
        unseen=_unseen(spec),
        reason=reason,
    )


def _measured(
    trials: Trials, calls: list[OtherCall], elements: list[Tensor], eps_tolerance: float
) -> Certificate:
    """All figures; the first call is the example."""
    spec, ignored, example = trials.spec, guards(trials.spec), calls[0].arguments
    if not trials.wide:
        elements = [powers_of_two(spec, element) for element in elements]
    found = _Found(trials, trials.passing(PASSING), ignored)
    for number, call in enumerate(calls):
        found.add(call, elements[number % len(elements) :][:1] if number and elements else elements)
    charges = _charges(found, example, elements)
    eps_error, nearby = (
        _eps_errors(trials, example, elements) if spec.approximate else (found.output_error, 0.0)
    )
    changed = mode_change(trials.model, spec.modes) if spec.modes else None
    return replace(
        _not_tried(spec, ""),
        output_error=found.output_error,
        eps_error=eps_error,
        eps_nearby=nearby,
        evaluation_error=found.evaluation_error,
        noether_residual=charges.largest,
        tried=tuple(found.tried),
        notes=(
            *found.differences(),
            *([f"{changed} when symmetries were found"] if changed else []),
            *found.skipped,
            *trials.notes,
            *charges.notes,
        ),
        passing=found.passing,
        eps_tolerance=eps_tolerance,
        differentiable=charges.differentiable,
    )


@dataclass(slots=True)
class _Found:
    """Errors over all inputs."""

    trials: Trials
    passing: float
    ignored: set[float]
    output_error: float = 0.0
    evaluation_error: float = 0.0
    tried: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])
    differ: list[str] = field(default_factory=list[str])

    def differences(self) -> list[str]:
        """On which inputs outputs differ, in words."""
        return [f"outputs differ on {', '.join(dict.fromkeys(self.differ))}"] if self.differ else []

    def add(self, call: OtherCall, elements: list[Tensor]) -> None:
        """Try elements on an input; the model has to take the first, and may refuse those that are drawn."""
        try:
            before = self.trials.outputs(call.arguments, ignored=self.ignored)
        except SymmetryError:
            raise
        except Exception as failure:  # of the model's own forward
            if not self.tried:
                raise
            self._skip(call, described(failure))
            return
        if self.tried and not any(bool(one.isfinite().any()) for one in before.calls):
            self._skip(call, "its outputs are not finite")
            return
        self.tried.append(call.what)
        for element in elements:
            self._try(call, before, element)

    def _skip(self, call: OtherCall, reason: str) -> None:
        self.skipped += [f"{call.what} could not be tried ({reason})"] if call.given else []

    def _try(self, call: OtherCall, before: Outputs, element: Tensor) -> None:
        change = self.trials.change(before, call.arguments, element, ignored=self.ignored)
        if max(change) >= self.passing:
            rounding = self.trials.rounding(before, call.arguments, ignored=self.ignored)
            self.passing = max(self.passing, rounding)
        self.differ += [call.what] if max(change) >= self.passing else []
        self.output_error = max(self.output_error, change.calls)
        self.evaluation_error = max(self.evaluation_error, change.evaluated)


class _Charges(NamedTuple):
    """The largest charge; NaN if there is none."""

    largest: float
    differentiable: bool
    notes: list[str]


def _charges(found: _Found, example: Arguments, elements: list[Tensor]) -> _Charges:
    """Charges of the generators, and what they tell where outputs stay though charges do not vanish."""
    spec = found.trials.spec
    products = found.trials.products(example, ignored=found.ignored)
    charges = charges_of(spec, products)
    notes = _not_measured(found.trials, products)
    measured = charges[~charges.isnan()]
    if len(spec) and not len(measured) and not notes:
        notes = ["charges were not measured: all that scales moves running statistics"]
    largest = float(measured.max()) if len(measured) else (math.nan if len(spec) else 0.0)
    if not (largest >= found.passing and found.output_error < found.passing and elements):
        return _Charges(largest, True, notes)
    offending = torch.where(charges >= found.passing, elements[0], 0.0)
    found.add(OtherCall("the example once more", example), [offending])
    differentiable = found.output_error >= found.passing
    return _Charges(largest, differentiable, notes if differentiable else [*notes, NOT_THE_DERIVATIVE])


def _not_measured(trials: Trials, products: Mapping[str, Tensor] | None) -> list[str]:
    """Of which parameters no charge was measured, in words."""
    if products is None:
        return ["charges were not measured: the model cannot be differentiated"]
    spec = trials.spec
    parameters = {spec.aliases.get(name, name) for name, _ in trials.model.named_parameters()}
    missing = [name for name in spec.tensors if name in parameters and name not in products]
    missing = [name for name in missing if bool(spec.moves([name]).any())]
    if not missing:
        return []
    return [f"charges were not measured of what moves {first_few(missing)}: no gradient reaches them"]


def _calls(
    spec: SymmetrySpec, model: nn.Module, example: Arguments, *, draw: bool
) -> tuple[list[OtherCall], list[str]]:
    """The example, others the group was found by, and some that are drawn; and which are left out."""
    given = tensors_of(example)
    devices = {one.device for one in given}
    found, left_out = [OtherCall("the example", example, given=True)], list[str]()
    for number, other in enumerate(spec.examples):
        _, positional, named = unpacked(model, *other)
        if are_equal((positional, named), example):
            continue
        if {one.device for one in tensors_of((positional, named))} == devices:
            found.append(OtherCall(f"example {number} of the group", (positional, named), given=True))
        else:
            left_out.append(f"example {number} of the group was not tried (it is on another device)")
    # On other devices an index that is out of range cannot be caught.
    on_cpu = all(one.device.type == "cpu" for one in given)
    return found + (other_calls(example, lengths=on_cpu) if draw else []), left_out


def _unseen(spec: SymmetrySpec) -> tuple[str, ...]:
    """Paths that discovery has not seen."""
    unreached = [f"uses of '{name}'" for name in spec.unreached]
    recorded = [f"other ways than the one that was recorded ({spec.recorded})"] if spec.recorded else []
    return (*unreached, *spec.paths, *recorded)


def guards(spec: SymmetrySpec) -> set[float]:
    """The constants that operations are exact up to."""
    found = (re.search(r"\(eps (\S+)\)$", place) for place in spec.approximate)
    return {float(one[1]) for one in found if one}


def _eps_errors(trials: Trials, example: Arguments, elements: list[Tensor]) -> tuple[float, float]:
    """Changes with every eps as it is: by elements, and by some that change no scale by more than 10 %."""
    before = trials.outputs(example)
    far = [max(trials.change(before, example, element)) for element in elements]
    near = [max(trials.change(before, example, _nearby(trials.spec, seed))) for seed in range(2)]
    return max(far, default=0.0), max(near)


def _nearby(spec: SymmetrySpec, seed: int) -> Tensor:
    """An element that changes no entry by more than 10 %."""
    element = spec.random(seed=seed)
    largest = float(spec.by_scale(element).abs().max())
    return element * (NEARBY / largest) if largest else element


def charges_of(spec: SymmetrySpec, products: Mapping[str, Tensor] | None) -> Tensor:
    """Charges relative to the sum of all weights times gradients; NaN where a gradient is missing."""
    if products is None:
        return torch.full((len(spec),), math.nan, device="cpu")
    size = sum(float(product.abs().sum()) for product in products.values())
    missing = spec.moves(name for name in spec.tensors if name not in products)
    return (spec.charges(products).abs() / (size or 1.0)).masked_fill(missing, math.nan)

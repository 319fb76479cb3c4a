"""How much the eps of normalizations matters: by how much acting on a model changes its outputs."""

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from symoptim.errors import EpsWarning, SymmetryError, warn_user
from symoptim.modules import require_module
from symoptim.symmetry.calls import calls_of, unpacked
from symoptim.symmetry.failures import described
from symoptim.symmetry.limits import is_out_of_memory
from symoptim.symmetry.reused import Reused
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.trials import Outputs, Trials
from symoptim.symmetry.variations import Arguments


def require_small_effect(
    spec: SymmetrySpec, model: nn.Module, element: Tensor, inputs: object, tolerance: float
) -> None:
    """Refuse an element that changes outputs.

    Args:
        spec: the group.
        model: is left as it is.
        element: log-scales.
        inputs: of one or several calls; those the group was found by, if there are none.
        tolerance: relative change that is accepted.

    Raises:
        SymmetryError: outputs would change by more.
    """
    effect = eps_effect_of(spec, model, inputs)
    change = effect.change(element) if effect is not None else 0.0
    if not change <= tolerance:
        raise SymmetryError(
            f"outputs would change by {change:.1e}, and {tolerance:.1e} is accepted: {_whose(spec)} is felt "
            "at these weights and inputs; nothing was changed: act with a smaller element, give other "
            "inputs=, or accept more with tolerance= (math.inf for any change)"
        )


def _whose(spec: SymmetrySpec) -> str:
    """Which eps, in words."""
    first, *others = spec.approximate
    return f"the constant of {first}" + (f", or of {len(others)} other operations," if others else "")


def eps_effect_of(spec: SymmetrySpec, model: nn.Module, inputs: object) -> "EpsEffect | None":
    """What measures changes of a model's outputs; None, with a warning, where nothing can be measured."""
    given = calls_of(inputs) if inputs is not None else spec.examples
    calls = [(positional, named or {}) for positional, named in given]
    if not calls:
        warn_user(
            "the effect of eps on the outputs was not measured, because there is no example input: give "
            "inputs=, or accept any change with tolerance=math.inf",
            EpsWarning,
        )
        return None
    model = require_module(model)
    devices = {tensor.device for tensor in spec.require_model(model).values()}
    if any(device.type == "meta" for device in devices):
        warn_user(
            "the effect of eps on the outputs was not measured, because the model has no values (meta "
            "device): act on a copy that has some, or accept any change with tolerance=math.inf",
            EpsWarning,
        )
        return None
    reason = ""
    for wide in (True, False):
        try:
            opened = [unpacked(model, *call) for call in calls]
            visible = [_moved_to(devices, (arguments, named)) for _, arguments, named in opened]
            return EpsEffect(spec, opened[0][0], visible, wide=wide)
        except Exception as failure:  # of the model: on copies, in float64, or on these inputs
            if is_out_of_memory(failure):
                raise
            reason = reason or described(failure)
    warn_user(
        f"the effect of eps on the outputs was not measured, because the model cannot be called ({reason}): "
        "give inputs=, or accept any change with tolerance=math.inf",
        EpsWarning,
    )
    return None


def _moved_to(devices: set[torch.device], call: Arguments) -> Arguments:
    """A call on the device of the model, if that is a single one."""
    device = next(iter(devices)) if len(devices) == 1 else None

    def moved(value: object) -> Any:
        return value.to(device) if isinstance(value, Tensor) and device is not None else value

    inputs, keywords = tree_map(moved, (call[0], dict(call[1])))
    return inputs, keywords


class EpsEffect:
    """Changes of a model's outputs, in the mode its group was found in.

    Where running statistics move, in evaluation mode too: an eps that is nothing beside the variance of a
    batch may be much beside the running one.
    """

    def __init__(
        self, spec: SymmetrySpec, model: nn.Module, calls: Sequence[Arguments], *, wide: bool
    ) -> None:
        """Call the model as it is."""
        self.spec, self.calls, self.measured = spec, list(calls), 0
        self.before: list[tuple[Trials, list[Outputs]]] = []
        reused = Reused(model, wide=wide)
        self._add(Trials(spec, model, wide=wide, modes=spec.modes, reused=reused))
        if any(spec.modes.values()) and self._moves_buffers(model):
            named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
            evaluation = {name: False for name, _ in named}
            try:
                self._add(Trials(spec, model, wide=wide, modes=evaluation, reused=reused))
            except Exception as failure:  # it may be a mode the model has never been in: that is said
                if is_out_of_memory(failure):
                    raise
                warn_user(
                    "the effect of eps on the outputs in evaluation mode was not measured, because the model "
                    f"cannot be called in it ({described(failure)}); in training mode it was",
                    EpsWarning,
                )

    def _add(self, trials: Trials) -> None:
        self.before.append((trials, [trials.outputs(call, calls=1) for call in self.calls]))

    def _moves_buffers(self, model: nn.Module) -> bool:
        buffers = {self.spec.aliases.get(name, name) for name, _ in model.named_buffers()}
        return bool(self.spec.moves(name for name in self.spec.tensors if name in buffers).any())

    def change(self, element: Tensor) -> float:
        """Largest relative change of an output by an element; NaN is infinite."""
        self.measured += 1
        changes = [
            trials.change(before, call, element, calls=1).calls
            for trials, outputs in self.before
            for before, call in zip(outputs, self.calls, strict=True)
        ]
        return math.inf if any(math.isnan(change) for change in changes) else max(changes)

    def slopes(self, element: Tensor) -> Tensor:
        """How fast outputs change along each generator, at both ends, times how far it is to move.

        Without gradients, as for running statistics, how far it is to move.
        """
        spec, found = self.spec, torch.zeros(len(element), dtype=torch.float64)
        for trials, call, there in product([one for one, _ in self.before], self.calls, (None, element)):
            products = trials.products(call, there)
            charges = spec.charges(products or {}).abs()
            unknown = spec.moves(name for name in spec.tensors if name not in (products or {}))
            found = torch.maximum(found, torch.where(unknown, 1.0, charges.nan_to_num(1.0)))
        return found * element.abs()

"""What the full metric of a model warns of: another mode, parameters not trained, units not measured."""

from collections.abc import Iterable, Mapping
from typing import cast

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]

from symoptim.errors import (
    GeometryWarning,
    ModeWarning,
    UngroupedWarning,
    UnmeasuredWarning,
    first_few,
    warn_user,
)
from symoptim.metric.full_metric import FullMetric
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import whole_numbers


class ModelWarnings:
    """Modules whose mode decides about the symmetries of a model, and its parameters that were frozen.

    These modules are those with running statistics, and others of which the group moves a buffer. Dropout
    and what else differs in training leaves rescalings as they are.
    """

    def __init__(self, model: nn.Module, spec: SymmetrySpec) -> None:
        """Note them down."""
        modes = spec.modes
        modules = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())  # torch leaves it untyped
        self.modes = [
            (name, module, _mode_of(name, modes))
            for name, module in modules
            if modes and _mode_matters(name, module, spec)
        ]
        """Name, module, and whether it was in training mode when the group was found."""
        known = {*spec.tensors, *spec.aliases}
        self.frozen: dict[Tensor, str] = {
            parameter: name
            for name, parameter in model.named_parameters()
            if name in known and not parameter.requires_grad
        }
        """Parameters that did not require gradients, and are in no group."""
        self.start: tuple[nn.Module, set[Tensor]] | None = model, {*model.parameters()}
        """The model and its parameters, until the first gradients were looked at."""

    def grouped(self, parameters: Iterable[Tensor]) -> None:
        """Parameters that are in a group from now on."""
        for parameter in parameters:
            self.frozen.pop(parameter, None)

    def warn(self) -> None:
        """Warn of what is not as it was; of every thing once. Nothing waits for a device."""
        for name, module, mode in self.modes:
            if module.training != mode:
                self.modes = []
                _warn_of_mode(name, module)
                break
        thawed = [one for one in self.frozen if one.requires_grad and one.grad is not None]
        if thawed:
            _warn_of_untrained(
                [self.frozen.pop(one) for one in thawed],
                "frozen when",
                "Add them: optimizer.add_param_group({'params': ...})",
            )
        if self.start is not None:
            model, known = self.start
            trained = [(name, one) for name, one in model.named_parameters() if one.grad is not None]
            self.start = None if trained else self.start
            if new := [name for name, one in trained if one not in known]:
                found = "Find the symmetries of the model as it is now, and make the optimizer anew"
                _warn_of_untrained(new, "added to the model after", found)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "start": None}  # the model itself is not needed any more


def _mode_of(name: str, modes: Mapping[str, bool]) -> bool:
    """Mode of a module where only those that differ from their parent are noted."""
    while name not in modes:
        name = name.rpartition(".")[0]
    return modes[name]


def _mode_matters(name: str, module: nn.Module, spec: SymmetrySpec) -> bool:
    if isinstance(module, _NormBase):
        return module.track_running_stats
    own = [f"{name}.{key}".removeprefix(".") for key, _ in module.named_buffers(recurse=False)]
    known = [key for key in own if key in spec.tensors]
    return bool(known) and bool(spec.moves(known).any())


def _warn_of_mode(name: str, module: nn.Module) -> None:
    now, then = ("training", "evaluation") if module.training else ("evaluation", "training")
    found = "discover(model.train(), ...)" if module.training else "discover(model.eval(), ...)"
    place = f"'{name}' ({type(module).__name__})" if name else "the model"
    warn_user(
        f"these symmetries were found in {then} mode, and {place} is in {now} "
        "mode, where the model has others: training will depend on how it is scaled. Make the optimizer with "
        f"those of the mode it is trained in, of {found}",
        ModeWarning,
    )


def _warn_of_untrained(names: list[str], how: str, way_out: str) -> None:
    was, has, is_ = ("was", "has", "is") if len(names) == 1 else ("were", "have", "are")
    warn_user(
        f"{first_few(names)}: {was} {how} the optimizer was created and now {has} gradients, but {is_} "
        f"in none of its groups: not trained. {way_out}",
        UngroupedWarning,
    )


def warn_of_empty(spec: SymmetrySpec) -> None:
    """Say so if there is nothing to be invariant to."""
    if not len(spec):
        warn_user(
            "the group has no rescaling, so that its metric changes nothing: the optimizer is the plain one. "
            "print(spec) says what was pinned",
            GeometryWarning,
        )


def warn_of_unmeasured(metric: FullMetric, spec: SymmetrySpec) -> None:
    """Say to which rescalings training will not be invariant, if there are any."""
    names = [spec.names[number] for number in whole_numbers(metric.unmeasured())]
    if names:
        warn_user(
            f"{len(names)} of the {len(spec)} rescalings have no weight to be measured by, the first of them "
            f"that of {names[0]}: training will depend on how these units are scaled, and on no other",
            UnmeasuredWarning,
        )

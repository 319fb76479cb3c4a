"""The full metric of one model beside an optimizer: factors of its parameters, where and as they are now."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]

from symoptim.errors import (
    CheckpointError,
    GeometryWarning,
    ModeWarning,
    OptionError,
    SymmetryError,
    UngroupedWarning,
    UnmeasuredWarning,
    first_few,
    warn_user,
)
from symoptim.geometry.tensors import is_distributed, update_dtype
from symoptim.kernels.backend import unsupported_device_reason
from symoptim.metric.factor_buffers import FusedMetric, RowColumnFactors
from symoptim.metric.full_metric import FullMetric
from symoptim.metric.gauge import Gauge
from symoptim.modules import unwrapped
from symoptim.optim.functional import Factors
from symoptim.optim.fused_support import wants_fused
from symoptim.optim.master_weights import State, working_weights
from symoptim.optim.tensor_snapshot import Change, TensorSnapshot
from symoptim.optim.validation import Group
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import whole_numbers


class ModelMetric:
    """The metric, and the tensors of the model it is about.

    Before a step :meth:`refresh` writes the factors that kernels read; :meth:`factors` returns new tensors.
    """

    _fused: FusedMetric | None = None
    _others: TensorSnapshot | None = None

    def __init__(self, model: nn.Module, spec: SymmetrySpec | None, gauge: Gauge) -> None:
        """Look at the model's weights once: which blocks are zero decides how sizes are read from now on.

        Args:
            model: the network, its weights in place; compiled or wrapped for data parallelism or not.
            spec: its group.
            gauge: how sizes become scales.

        Raises:
            OptionError: the arguments are no model, no group or no gauge, or weights are still to come.
            SymmetryError: the group is of another model.
        """
        self.spec = spec = _require_kinds(model, spec, gauge)
        model = unwrapped(model)
        there = spec.require_model(model)
        for name in spec.tensors:
            if there[name].is_meta:
                raise OptionError(f"'{name}' is on the meta device: give the model its weights first")
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        """Of all parameters of the model, moved or not."""
        known = {*spec.tensors, *spec.aliases}
        self._unseen = {name: parameter for parameter, name in self.names.items() if name not in known}
        """Parameters that no pass has used; if one gets a gradient, the group is of another model."""
        self._shapes = {name: _shape_of(there[name]) for name in spec.tensors}
        with torch.device("cpu"):  # whatever the default device is
            self.full = FullMetric.of(spec, there, gauge)
        warn_of_empty(spec)
        warn_of_unmeasured(self.full, spec)
        self.warnings = ModelWarnings(model, spec)
        self.tensors = {name: there[name] for name in spec.tensors if isinstance(there[name], nn.Parameter)}
        # A module that is moved gets new buffers: those that are measured by are looked up every time.
        self._owners = {
            name: (model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2])
            for name in sorted(self.full.tensors_read() - set(self.tensors))
        }
        self._on_device: dict[tuple[torch.device, torch.dtype], FullMetric] = {}
        self.on_device()

    def on_device(self) -> FullMetric:
        """The metric on the first parameter's device, in the widest precision there is."""
        tensors = [tensor for tensor in self.tensors.values() if tensor.is_floating_point()]
        device = tensors[0].device if tensors else torch.device("cpu")
        dtypes = [update_dtype(tensor.dtype) for tensor in tensors] or [torch.float32]
        key = device, max(dtypes, key=lambda dtype: dtype.itemsize)
        if key not in self._on_device:
            self._on_device = {key: self.full.on(*key)}
        return self._on_device[key]

    def factors(self, state: Mapping[Tensor, State], power: float) -> Factors:
        """Scales of the parameters to a power.

        Args:
            state: of an optimizer, where master copies are.
            power: 2 for the step of SGD, 1 for other coordinates.

        Returns:
            Factors of the parameters that move.
        """
        found = self.on_device().factors(self.weights(state), power)
        return {self.tensors[name]: factors for name, factors in found.items() if name in self.tensors}

    def weights(self, state: Mapping[Tensor, State]) -> dict[str, Tensor]:
        """All tensors of the metric, by name, in the precision of updates; ``state`` has master copies."""
        weights = {name: _wide(tensor, state.get(tensor, {})) for name, tensor in self.tensors.items()}
        return weights | {name: _wide(buffer, {}) for name, buffer in self._buffers().items()}

    def allocate(self, groups: Sequence[Group]) -> dict[Tensor, RowColumnFactors | None]:
        """Plan the kernels, and memory for the factors that those of a step read; its values come later.

        Args:
            groups: of the optimizer.

        Returns:
            That memory by parameter; None for those whose factors are not by rows and columns, or that no
            kernel finds.
        """
        self.require_all_seen()  # before any state is made
        for group in groups:  # which may have got others since they were added
            for parameter in group["params"]:
                self.named(parameter)
        self._fused = self._kernels(2.0) if any(map(wants_fused, groups)) else None
        there: Mapping[str, RowColumnFactors] = {} if self._fused is None else self._fused.factors
        moved = (name for name, terms in self.full.layout.terms.items() if terms and name in self.tensors)
        return {self.tensors[name]: there.get(name) for name in moved}

    def _kernels(self, power: float) -> FusedMetric | None:
        """The metric for kernels, or None if there are none where the parameters are."""
        metric = self.on_device()
        device, dtype = metric.layout.exponents.values.device, metric.layout.exponents.values.dtype
        there = {**self.tensors, **self._buffers()}
        if unsupported_device_reason(device, dtype) is not None or any(map(is_distributed, there.values())):
            return None
        with torch.device("cpu"):
            if device.type == "cpu":
                tensors = self.weights({})
                are_copies = any(tensors[name].dtype != tensor.dtype for name, tensor in there.items())
                from symoptim.metric.numba_backend import CpuMetric  # which needs numba

                return CpuMetric(metric, tensors, power, are_copies=are_copies)
            from symoptim.metric.triton_backend import CudaMetric  # which needs Triton

            return CudaMetric(self.full, there, power, device, dtype)

    def watch_others(self, stepped: Iterable[Tensor]) -> None:
        """Note where tensors are that kernels read and do not step; a step looks at those it steps."""
        known = set(stepped)
        self._not_stepped = [one for one in self.tensors.values() if one not in known]
        if not known:
            self._fused = None
        self._others = None if self._fused is None else TensorSnapshot([], self._read_only())

    def _read_only(self) -> list[Tensor]:
        return [*self._not_stepped, *self._buffers().values()]

    def is_current(self) -> bool:
        """Whether tensors that kernels read and do not step are where they were."""
        return self._others is None or self._others.change([], self._read_only()) is Change.NONE

    def refresh(self, state: Mapping[Tensor, State]) -> None:
        """Write the factors that kernels read, at the weights as they are now; warn of what has changed."""
        self.require_all_seen()
        if self._fused is not None:
            self._fused.refresh(lambda: self.weights(state))

    def _buffers(self) -> dict[str, Tensor]:
        return {name: module.get_buffer(key) for name, (module, key) in self._owners.items()}

    def named(self, member: Tensor | tuple[str, Tensor]) -> tuple[str, Tensor]:
        """A parameter with its name in the model; an error if it has none."""
        parameter = member[1] if isinstance(member, tuple) else member
        if parameter not in self.names:
            raise OptionError(
                f"a parameter of shape {tuple(parameter.shape)} is none of the model's: the full metric "
                "knows only the model's parameters"
            )
        return self.names[parameter], parameter

    def require_all_seen(self) -> None:
        """Refuse gradients of parameters that the group does not know; warn of what else is unexpected."""
        self.warnings.warn()
        for name, parameter in self._unseen.items():
            if parameter.grad is not None:
                raise SymmetryError(
                    f"these are another model's symmetries: they do not know '{name}', which has a gradient; "
                    "find those of this model, with inputs that use all of it"
                )

    def saved(self) -> State:
        """What a group has to remember: which gauge it is, and which blocks were zero at the start."""
        return {"gauge": repr(self.full.gauge), "alive": self.full.alive.clone()}

    def require_ours(self, alive: object) -> None:
        """Refuse a memory of zero blocks that is not of a model like this one."""
        ours = self.full.alive
        if not isinstance(alive, Tensor) or alive.dtype != torch.bool or alive.shape != ours.shape:
            raise CheckpointError(
                f"the saved state must say which of {len(ours)} blocks were zero at the start ('alive' of "
                "its groups), and does not: it is of another model. Build the optimizer as it was when it "
                "was saved, or start with a fresh one"
            )

    def load(self, alive: Tensor) -> None:
        """Read sizes as a metric did for which these blocks were not zero."""
        if not torch.equal(alive.cpu(), self.full.alive):
            with torch.device("cpu"):
                self.full = FullMetric.of(self.spec, self._shapes, self.full.gauge, alive.cpu())
            self._on_device.clear()

    def __getstate__(self) -> State:
        return {**vars(self), "_fused": None, "_others": None}  # made anew where it is unpickled


def _wide(tensor: Tensor, state: State) -> Tensor:
    """A tensor in the precision of updates: its master copy, where it has one."""
    tensor = tensor.detach()
    return working_weights(tensor, state) if "master" in state else tensor.to(update_dtype(tensor.dtype))


def _shape_of(tensor: Tensor) -> Tensor:
    """A tensor or parameter without values."""
    empty = torch.empty(tensor.shape, device="meta")
    return nn.Parameter(empty) if isinstance(tensor, nn.Parameter) else empty


def _require_kinds(model: object, spec: object, gauge: object) -> SymmetrySpec:
    if not isinstance(model, nn.Module):
        raise OptionError(
            "the full metric is of a whole model: give the nn.Module, and groups of its parameters as "
            f"groups=; got {type(model).__name__}"
        )
    if not isinstance(spec, SymmetrySpec):
        raise OptionError(
            f"spec must be what symoptim.discover returns, got {type(spec).__name__}: give "
            "spec=symoptim.discover(model, example_inputs)"
        )
    if not isinstance(gauge, Gauge):
        raise OptionError(
            f"gauge must be one of symoptim.Pooled(), OwnRow(), PathNorm(), Geometric(); got {gauge!r}"
        )
    return spec


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

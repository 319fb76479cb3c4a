"""The full metric of one model, kept beside an optimizer: by parameter, on its device, in its precision."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from symoptim.errors import CheckpointError, OptionError, SymmetryError, UnmeasuredWarning, warn_user
from symoptim.geometry.distributed import is_distributed
from symoptim.geometry.filters import update_dtype
from symoptim.kernels.dispatch import why_not_here
from symoptim.metric.full import FullMetric
from symoptim.metric.fused import FusedMetric
from symoptim.metric.gauge import Gauge
from symoptim.metric.sides import Sides
from symoptim.modules import unwrapped
from symoptim.optim.apply import Factors
from symoptim.optim.notices import Notices, warn_of_empty
from symoptim.optim.precision import State, working_weights
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import whole_numbers


class BoundMetric:
    """The metric, and the tensors of the model it is about."""

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
        spec = _require_kinds(model, spec, gauge)
        there = spec.require_model(unwrapped(model))
        for name in spec.tensors:
            if there[name].is_meta:
                raise OptionError(f"'{name}' is on the meta device: give the model its weights first")
        self.spec = spec
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in unwrapped(model).named_parameters()
        }
        """Of all parameters of the model, moved or not."""
        known = {*spec.tensors, *spec.aliases}
        self.unseen = {name: parameter for parameter, name in self.names.items() if name not in known}
        """Parameters that no pass has used; if one gets a gradient, the group is of another model."""
        self.shapes = {name: _shape_of(there[name]) for name in spec.tensors}
        with torch.device("cpu"):  # whatever the default device is
            self.metric = FullMetric.of(spec, there, gauge)
        warn_of_empty(spec)
        warn_of_unmeasured(self.metric, spec)
        self.notices = Notices(unwrapped(model), spec)
        self.tensors = {name: there[name] for name in spec.tensors if isinstance(there[name], nn.Parameter)}
        # A module that is moved gets new buffers: those that are measured by are looked up every time.
        self.owners = {
            name: (unwrapped(model).get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2])
            for name in sorted(self.metric.read() - set(self.tensors))
        }
        self._here: dict[tuple[torch.device, torch.dtype], FullMetric] = {}
        self.metric_here()

    def metric_here(self) -> FullMetric:
        """The metric on the first parameter's device, in the widest precision there is."""
        tensors = [tensor for tensor in self.tensors.values() if tensor.is_floating_point()]
        device = tensors[0].device if tensors else torch.device("cpu")
        dtypes = [update_dtype(tensor.dtype) for tensor in tensors] or [torch.float32]
        place = device, max(dtypes, key=lambda dtype: dtype.itemsize)
        if place not in self._here:
            self._here = {place: self.metric.on(*place)}
        return self._here[place]

    def factors(self, state: Mapping[Tensor, State], power: float) -> Factors:
        """Scales of the parameters to a power.

        Args:
            state: of an optimizer, where master copies are.
            power: 2 for the step of SGD, 1 for the chart.

        Returns:
            Factors of the parameters that move.
        """
        found = self.metric_here().factors(self.weights(state), power)
        return {self.tensors[name]: factors for name, factors in found.items() if name in self.tensors}

    def weights(self, state: Mapping[Tensor, State]) -> dict[str, Tensor]:
        """All tensors of the metric, by name, in the precision of updates; ``state`` has master copies."""
        self.require_all_seen()
        weights = {name: _wide(tensor, state.get(tensor, {})) for name, tensor in self.tensors.items()}
        return weights | {name: _wide(buffer, {}) for name, buffer in self._buffers().items()}

    def fused(self, power: float) -> FusedMetric | None:
        """The metric for kernels, or None if there are none where the parameters are."""
        metric = self.metric_here()
        device, dtype = metric.layout.exponents.values.device, metric.layout.exponents.values.dtype
        there = {**self.tensors, **self._buffers()}
        if why_not_here(device, dtype) is not None or any(map(is_distributed, there.values())):
            return None
        with torch.device("cpu"):
            if device.type == "cpu":
                tensors = self.weights({})
                are_copies = any(tensors[name].dtype != tensor.dtype for name, tensor in there.items())
                from symoptim.metric.cpu import CpuMetric  # which needs numba

                return CpuMetric(metric, tensors, power, are_copies=are_copies)
            from symoptim.metric.triton_backend import CudaMetric  # which needs Triton

            return CudaMetric(self.metric, there, power, device, dtype)

    def sight(self, some: Iterable[Tensor]) -> list[object]:
        """Where and how some parameters lie, and all buffers that are measured: kernels rely on it."""
        there = chain(some, self._buffers().values())
        return [(one.data_ptr(), one.shape, one.stride(), one.dtype, one.device) for one in there]

    def _buffers(self) -> dict[str, Tensor]:
        return {name: module.get_buffer(key) for name, (module, key) in self.owners.items()}

    def sides(self, found: FusedMetric | None) -> dict[Tensor, Sides | None]:
        """Where the factors of all parameters that move are."""
        there: Mapping[str, Sides] = {} if found is None else found.sides
        moved = (name for name, terms in self.metric.layout.terms.items() if terms and name in self.tensors)
        return {self.tensors[name]: there.get(name) for name in moved}

    def require_all_seen(self) -> None:
        """Refuse gradients of parameters that the group does not know; warn of what else is unexpected."""
        self.notices.look()
        for name, parameter in self.unseen.items():
            if parameter.grad is not None:
                raise SymmetryError(
                    f"these are another model's symmetries: they do not know '{name}', which has a gradient; "
                    "find those of this model, with inputs that use all of it"
                )

    def saved(self) -> dict[str, Any]:
        """What a group has to remember: which gauge it is, and which blocks were zero at the start."""
        return {"gauge": repr(self.metric.gauge), "alive": self.metric.alive.clone()}

    def require_ours(self, alive: object) -> None:
        """Refuse a memory of zero blocks that is not of a model like this one."""
        ours = self.metric.alive
        if not isinstance(alive, Tensor) or alive.dtype != torch.bool or alive.shape != ours.shape:
            raise CheckpointError(
                f"the saved state must say which of {len(ours)} blocks were zero at the start ('alive' of "
                "its groups), and does not: it is of another model. Build the optimizer as it was when it "
                "was saved, or start with a fresh one"
            )

    def take_up(self, alive: Tensor) -> None:
        """Read sizes as a metric did for which these blocks were not zero."""
        if not torch.equal(alive.cpu(), self.metric.alive):
            with torch.device("cpu"):
                self.metric = FullMetric.of(self.spec, self.shapes, self.metric.gauge, alive.cpu())
            self._here.clear()


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


def warn_of_unmeasured(metric: FullMetric, spec: SymmetrySpec) -> None:
    """Say to which rescalings training will not be invariant, if there are any."""
    names = [spec.names[number] for number in whole_numbers(metric.unmeasured())]
    if names:
        warn_user(
            f"{len(names)} of the {len(spec)} rescalings have no weight to be measured by, the first of them "
            f"that of {names[0]}: training will depend on how these units are scaled, and on no other",
            UnmeasuredWarning,
        )

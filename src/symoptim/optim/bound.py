"""The full metric of one model, kept beside an optimizer: by parameter, on its device, in its precision."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from symoptim.errors import OptionError, UnmeasuredWarning
from symoptim.geometry.filters import update_dtype
from symoptim.metric.full import FullMetric
from symoptim.metric.gauge import Gauge
from symoptim.optim.apply import Factors
from symoptim.optim.checks import warn_user
from symoptim.optim.precision import State, working_weights
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import whole_numbers


class BoundMetric:
    """The metric, and the tensors of the model it is about."""

    def __init__(self, model: nn.Module, spec: SymmetrySpec, gauge: Gauge) -> None:
        """Look at the model's weights once: which blocks are zero decides how sizes are read from now on.

        Args:
            model: the network, its weights in place.
            spec: its group.
            gauge: how sizes become scales.

        Raises:
            OptionError: the arguments are no model, no group or no gauge, or weights are still to come.
            SymmetryError: the group is of another model.
        """
        if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                f"the full metric is of a whole model: give the nn.Module, got {type(model).__name__}"
            )
        if not isinstance(spec, SymmetrySpec):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"spec must be what symoptim.discover returns, got {type(spec).__name__}")
        if not isinstance(gauge, Gauge):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                f"gauge must be one of symoptim.Pooled(), OwnRow(), PathNorm(), Geometric(); got {gauge!r}"
            )
        there = spec.require_model(model)
        self.tensors = {name: there[name] for name in spec.tensors}
        for name, tensor in self.tensors.items():
            if tensor.is_meta:
                raise OptionError(f"'{name}' is on the meta device: give the model its weights first")
        self.spec = spec
        self.names = {parameter: name for name, parameter in model.named_parameters()}
        """Of all parameters of the model, moved or not."""
        self.metric = FullMetric.of(spec, self.tensors, gauge)
        self._warn_of_unmeasured()
        self._here: dict[tuple[torch.device, torch.dtype], FullMetric] = {}
        self.metric_here()

    def _warn_of_unmeasured(self) -> None:
        names = [self.spec.names[number] for number in whole_numbers(self.metric.unmeasured())]
        if names:
            warn_user(
                f"{len(names)} of the {len(self.spec)} rescalings have no weight to be measured by (one "
                f"is of {names[0]}): training will not depend on the others, but on these",
                UnmeasuredWarning,
            )

    def metric_here(self) -> FullMetric:
        """The metric on the first parameter's device, in the widest precision there is."""
        dtypes = [
            update_dtype(tensor.dtype) for tensor in self.tensors.values() if tensor.is_floating_point()
        ]
        place = next(iter(self.tensors.values())).device, max(dtypes, key=lambda dtype: dtype.itemsize)
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
        weights = {
            name: _wide(tensor.detach(), state.get(tensor, {})) for name, tensor in self.tensors.items()
        }
        found = self.metric_here().factors(weights, power)
        return {self.tensors[name]: factors for name, factors in found.items()}

    def saved(self) -> dict[str, Any]:
        """What a group has to remember: which gauge it is, and which blocks were zero at the start."""
        return {"gauge": repr(self.metric.gauge), "alive": self.metric.alive}

    def take_up(self, alive: Tensor) -> None:
        """Read sizes as a metric did for which these blocks were not zero."""
        alive = alive.cpu()
        if not torch.equal(alive, self.metric.alive):
            self.metric = FullMetric.of(self.spec, self.tensors, self.metric.gauge, alive)
            self._here.clear()


def _wide(tensor: Tensor, state: State) -> Tensor:
    """A tensor in the precision of updates: its master copy, where it has one."""
    return working_weights(tensor, state) if "master" in state else tensor.to(update_dtype(tensor.dtype))

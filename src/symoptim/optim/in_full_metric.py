"""What all optimizers in the full metric share: groups, scales, checkpoints."""

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from symoptim.errors import OptionError
from symoptim.modules import unwrapped
from symoptim.optim.apply import Factors
from symoptim.optim.bound import BoundMetric
from symoptim.optim.checks import Group, require_params


class InFullMetric(Optimizer):
    """Mixin of optimizers whose parameters have the scales of a model's full metric.

    It goes before a class that has ``_check(group)``, ``_check_saved(saved)`` and ``_finish_loading(saved)``.
    """

    bound: BoundMetric

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of the model's parameters; one that is refused changes nothing."""
        if param_group.get("geometry", "plain") != "plain":
            raise OptionError(
                f"geometry '{param_group['geometry']}' has no place in the full metric, which gives every "
                "weight a scale: give parameters of the model, or groups without 'geometry'"
            )
        require_params(param_group)
        named = [self._named(member) for member in _listed(param_group["params"])]
        super().add_param_group({**param_group, "params": named, "geometry": "plain", **self.bound.saved()})
        self.bound.notices.grouped(parameter for _, parameter in named)

    def _named(self, member: Tensor | tuple[str, Tensor]) -> tuple[str, Tensor]:
        """A parameter with its name in the model."""
        parameter = member[1] if isinstance(member, tuple) else member
        if parameter not in self.bound.names:
            raise OptionError(
                f"a parameter of shape {tuple(parameter.shape)} is none of the model's: the full metric "
                "knows only the model's parameters"
            )
        return self.bound.names[parameter], parameter

    def scales(self) -> Factors:
        """Scales s of the parameters that move with any rescaling of the model."""
        return self.bound.factors(self.state, 1.0)

    def _check_saved(self, saved: dict[str, Any]) -> None:
        super()._check_saved(saved)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        for group in saved["param_groups"]:
            self.bound.require_ours(group["alive"])

    def _finish_loading(self, saved: dict[str, Any]) -> None:
        super()._finish_loading(saved)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        # A state without any memory, of another optimizer that has not stepped, leaves ours as it is.
        self.bound.take_up(self.param_groups[0].get("alive", self.bound.metric.alive))
        for group in self.param_groups:
            group["alive"] = self.bound.metric.alive.clone()

    def __repr__(self) -> str:
        """As torch's, without the long memory of which blocks were zero."""
        groups = self.param_groups
        self.param_groups = [{key: group[key] for key in group if key != "alive"} for group in groups]
        try:
            return super().__repr__()
        finally:
            self.param_groups = groups

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "bound": self.bound}


def _listed(params: Any) -> list[Any]:
    return [params] if isinstance(params, Tensor) else list(params)


def require_trainable(model: nn.Module) -> list[Tensor]:
    """Parameters of a model that are trained; an error if there are none."""
    found: list[Tensor] = [one for one in unwrapped(model).parameters() if one.requires_grad]
    if not found:
        raise OptionError(
            f"no parameter of {type(unwrapped(model)).__name__} requires gradients, so that there is "
            "nothing to train: call requires_grad_() of what is to be trained first, or give parameters that "
            "will be as groups="
        )
    return found

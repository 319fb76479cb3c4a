"""Rescale an optimizer's state along with the weights it belongs to.

When a weight is multiplied by s its gradient is divided by s. So is a sum of gradients, and a sum of their
squares is divided by s squared: what an optimizer has gathered becomes what it would have gathered at the
rescaled weights. An optimizer that gathers in other coordinates says so: ``state_exponents`` of its class.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from symoptim.errors import OptionError

EXPONENTS = {
    "momentum_buffer": -1,
    "exp_avg": -1,
    "exp_avg_sq": -2,
    "max_exp_avg_sq": -2,
    "exp_inf": -1,
    "square_avg": -2,
    "grad_avg": -1,
    "sum": -2,
    "ax": 1,
    "master": 1,
}
"""Powers of the weight's scale by which state of torch's optimizers moves, by its name.

Not Rprop's and Adadelta's: their sizes of steps begin at a number that knows nothing of the weights.
"""
NUMBERS = ("step", "eta", "mu", "mu_product")
"""State that does not move."""


def require_movable(optimizer: Optimizer, model: nn.Module) -> None:
    """Refuse an optimizer whose state cannot be rescaled, before anything is.

    Args:
        optimizer: of the model.
        model: the model.

    Raises:
        OptionError: a state has a name nothing is known of, coordinates of its own, or weights in it.
    """
    name = type(optimizer).__name__
    mine = {id(parameter) for parameter in model.parameters()}
    for group in optimizer.param_groups:
        if not any(id(parameter) in mine for parameter in group["params"]):
            raise OptionError(
                f"{name} has a group without a parameter of this model: give the model's optimizer"
            )
    if hasattr(optimizer, "state_exponents"):
        return
    for group in optimizer.param_groups:
        _require_plain(name, group)
    states: Iterable[Mapping[str, Any]] = optimizer.state.values()
    unknown = [key for state in states for key in state if key not in EXPONENTS and key not in NUMBERS]
    if unknown:
        known = ", ".join(EXPONENTS)
        raise OptionError(
            f"{name} has state '{unknown[0]}', and it is not known how that scales (known: {known}): "
            "rescale the model before its optimizer is made"
        )


def _require_plain(name: str, group: Mapping[str, Any]) -> None:
    """Refuse groups of which the state is not made of gradients alone."""
    way_out = "rescale the model before its optimizer is made"
    if group.get("geometry", "plain") != "plain":
        raise OptionError(f"{name} keeps filters in coordinates of their own: {way_out}")
    coupled = name not in DECOUPLED and not group.get("decoupled_weight_decay", False)
    if group.get("weight_decay", 0) and coupled:
        raise OptionError(
            f"{name} adds weights to gradients (weight_decay={group['weight_decay']}): {way_out}"
        )
    if group.get("initial_accumulator_value", 0):
        raise OptionError(f"{name} begins with a number that knows nothing of the weights: {way_out}")


DECOUPLED = ("AdamW", "Muon")
"""Optimizers whose weight decay does not go through their state."""


@torch.no_grad()
def rescale_state_(optimizer: Optimizer, log_scales: Mapping[Tensor, Tensor]) -> None:
    """Move the state of parameters.

    Args:
        optimizer: its state is changed in place.
        log_scales: of the parameters' entries, by parameter.
    """
    for parameter, log_scale in log_scales.items():
        state: Mapping[str, Any] = optimizer.state.get(parameter, {})
        exponents: Mapping[str, int] = getattr(optimizer, "state_exponents", EXPONENTS)
        if exponents is EXPONENTS and "square_avg" in state:
            # RMSprop's momentum is of gradients over their size.
            exponents = {**EXPONENTS, "momentum_buffer": 0}
        for key, value in state.items():
            if isinstance(value, Tensor) and key in exponents:
                value.mul_((exponents[key] * log_scale).exp().to(value))

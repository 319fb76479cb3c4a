"""What becomes of a model's tensors, and of its optimizer's state, under a rescaling.

When a weight is multiplied by s its gradient is divided by s. So is a sum of gradients, and a sum of their
squares is divided by s squared: what an optimizer has gathered becomes what it would have gathered at the
rescaled weights. An optimizer that gathers in other coordinates says so: ``state_exponents`` of its class.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from symoptim.errors import OptionError, SymmetryError, first_few

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
TOLERANCE = 1e-3
"""Relative change of outputs, by the eps of normalizations, that acting on a model may cause."""


def require_tolerance(tolerance: float) -> None:
    """Refuse what is no size of a change."""
    if not tolerance > 0:
        raise OptionError(f"tolerance must be a number above 0 (math.inf: any change), got {tolerance}")


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


def _require_plain(name: str, group: Mapping[str, object]) -> None:
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


def require_shapes(there: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], model: str) -> None:
    """Refuse a model that does not have the tensors of a group.

    Args:
        there: the model's tensors by all their names.
        shapes: of the tensors of the group.
        model: class of the model.

    Raises:
        SymmetryError: one is not there, or has another shape.
    """
    if missing := [name for name in shapes if name not in there]:
        raise SymmetryError(
            f"these are another model's symmetries: {model} has no parameter or buffer {first_few(missing)}: "
            f"{_where(there, shapes)}"
        )
    for name, shape in shapes.items():
        if (found := tuple(there[name].shape)) != shape:
            raise SymmetryError(
                f"these are another model's symmetries: '{name}' must have shape {shape}, and has shape "
                f"{found}"
            )


def _where(there: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The module that has all tensors of a group, if it is a part of the model, or has it as a part."""
    first, found = next(iter(shapes)), {name: tuple(tensor.shape) for name, tensor in there.items()}
    for path in [name.removesuffix(f".{first}") for name in there if name.endswith(f".{first}")]:
        if all(found.get(f"{path}.{name}") == shape for name, shape in shapes.items()):
            return f"they were found on what is its '{path}': give that module, model.get_submodule('{path}')"
    for path in [first.removesuffix(f".{name}") for name in there if first.endswith(f".{name}")]:
        inside = {name.removeprefix(f"{path}."): shape for name, shape in shapes.items()}
        if all(found.get(name) == shape for name, shape in inside.items()):
            return f"they were found on a model that has this one as '{path}': give that model"
    return "find those of this model, symoptim.discover(model, ...)"


def require_ties(there: Mapping[str, Tensor], names: Iterable[str], aliases: Mapping[str, str]) -> None:
    """Refuse a model whose tensors are tied in another way than a group says.

    Args:
        there: the model's tensors by all their names.
        names: of the tensors of the group, each of which is one of its own.
        aliases: other names of these.

    Raises:
        SymmetryError: other names are one tensor.
    """
    for alias, name in aliases.items():
        if there.get(alias) is not there[name]:
            are = "are two" if alias in there else "the latter is not there"
            raise SymmetryError(
                f"these are another model's symmetries: '{name}' and '{alias}' must be one tensor (tied), "
                f"and {are}"
            )
    first: dict[Tensor, str] = {}
    for name in names:
        if first.setdefault(there[name], name) != name:
            raise SymmetryError(
                f"these are another model's symmetries: '{first[there[name]]}' and '{name}' must be two "
                "tensors, and are one (tied)"
            )


@torch.no_grad()
def rescaled(
    tensors: Mapping[str, Tensor],
    log_terms: Mapping[str, list[Tensor]],
    optimizer: Optimizer | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """What a model's tensors and the state of its parameters become; nothing is written.

    A parameter with a master copy becomes the rounding of the copy.

    Args:
        tensors: the model's, by name.
        log_terms: log-scales of their entries, which add up, by name.
        optimizer: whose state is wanted, too.

    Returns:
        Tensors, each with its new values.

    Raises:
        SymmetryError: a finite entry would not be finite.
    """
    found: list[tuple[Tensor, Tensor]] = []
    for name, terms in log_terms.items():
        tensor = tensors[name]
        if tensor.device.type == "meta":  # it has no values
            continue
        log_scale = sum(terms[1:], terms[0])  # as large as the tensor: of one after the other
        state = dict[str, Any]() if optimizer is None else optimizer.state.get(tensor, {})
        moved: dict[str, Tensor] = {}
        for key, exponent in _exponents(optimizer, state).items():
            value: Tensor = _followed(state[key], tensor) if key == "master" else state[key]
            moved[key] = _times(value, exponent * log_scale, f"the {key} of '{name}'")
            found.append((state[key], moved[key]))
        if "master" in moved:
            new = _finite(moved["master"].to(tensor.dtype), tensor, f"'{name}'")
        else:
            new = _times(tensor, log_scale, f"'{name}'")
        found.append((tensor, new))
    return found


def _exponents(optimizer: Optimizer | None, state: Mapping[str, object]) -> dict[str, int]:
    """Powers by which a parameter's state moves, of what there is of it."""
    known: Mapping[str, int] = getattr(optimizer, "state_exponents", EXPONENTS)
    if known is EXPONENTS and "square_avg" in state:
        # RMSprop's momentum is of gradients over their size.
        known = {**EXPONENTS, "momentum_buffer": 0}
    return {key: known[key] for key, value in state.items() if isinstance(value, Tensor) and key in known}


def _followed(master: Tensor, parameter: Tensor) -> Tensor:
    """A master copy; where the parameter no longer is its rounding it was changed, and wins."""
    return torch.where(parameter == master.to(parameter.dtype), master, parameter.to(master.dtype))


def _times(tensor: Tensor, log_scale: Tensor, name: str) -> Tensor:
    """A tensor times exponentials, in float64 on the CPU, where log-scales are; rounded once."""
    product = tensor.detach().to("cpu", torch.float64) * log_scale.exp()
    return _finite(product.to(tensor.dtype), tensor, name)


def _finite(new: Tensor, old: Tensor, name: str) -> Tensor:
    """New values; an error if what was finite is not."""
    if not bool((new.isfinite() | ~old.detach().cpu().isfinite()).all()):
        raise SymmetryError(
            f"{name} would have entries too large for {old.dtype}; nothing was changed: act with a smaller "
            "element, or in a wider precision"
        )
    return new

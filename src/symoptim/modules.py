"""The model itself, out of what compiles it or runs it on several devices."""

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from symoptim.errors import OptionError


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel``.

    Parameters are the same, under the names that the model itself gives them.

    >>> model = nn.Linear(2, 2)
    >>> unwrapped(DataParallel(model)) is model, unwrapped(model) is model
    (True, True)
    """
    parallel = isinstance(model, DataParallel | DistributedDataParallel)
    # Not getattr: what a model's own __getattr__ does with a name that it does not know is up to it.
    inner = vars(model).get("_modules", {}).get("module" if parallel else "_orig_mod")
    return unwrapped(inner) if isinstance(inner, nn.Module) else model


def unwrapped_optimizer(optimizer: Optimizer) -> Optimizer:
    """The optimizer inside what Accelerate makes of it."""
    inner = getattr(optimizer, "optimizer", None)
    return unwrapped_optimizer(inner) if isinstance(inner, Optimizer) else optimizer


def require_module(model: object) -> nn.Module:
    """The unwrapped model; an error if it is none, or one that cannot be looked into."""
    if isinstance(model, torch.jit.ScriptModule):
        raise OptionError(
            "a scripted or traced model cannot be looked into: give the nn.Module it was made from"
        )
    if not isinstance(model, nn.Module):
        raise OptionError(f"a model must be an nn.Module, got {type(model).__name__}")
    return unwrapped(model)


def modes_of(model: nn.Module) -> dict[str, bool]:
    """Mode of a model (``""``), and of its modules that differ from their parent: True in training.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).eval())
    >>> modes_of(model)
    {'': True, '1': False}
    """
    named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    modes = {name: module.training for name, module in named}
    return {name: mode for name, mode in modes.items() if not name or mode != modes[name.rpartition(".")[0]]}


def mode_change(model: nn.Module, modes: Mapping[str, bool]) -> str | None:
    """How the mode of a model differs from one :func:`modes_of` has noted; None if it does not.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    >>> mode_change(model, modes_of(model)), mode_change(model.eval(), {"": True})
    (None, 'the model is in evaluation mode, and was in training mode')
    """
    words = {True: "training", False: "evaluation"}
    now = modes_of(model)
    if now == dict(modes):
        return None
    if now[""] != modes[""]:
        return f"the model is in {words[now['']]} mode, and was in {words[modes['']]} mode"
    name = next(name for name in (*now, *modes) if now.get(name) != modes.get(name))
    mode = model.get_submodule(name).training
    return f"'{name}' is in {words[mode]} mode, and was in {words[not mode]} mode"

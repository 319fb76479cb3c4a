"""Who competes: every contestant with its maker, the formula it is held to, and whether it is there."""

import functools
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import torch

from symoptim.bench.cases import Case, Weight
from symoptim.bench.formulas import Formula
from symoptim.bench.material import Material, Member
from symoptim.errors import OptionError


class Stepper(Protocol):
    """Anything that takes steps and remembers tensors between them, such as an optimizer."""

    @property
    def state(self) -> Mapping[Any, MutableMapping[str, Any]]:
        """What it remembers, by parameter."""
        ...

    def step(self) -> object:
        """Take a step."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a contestant is made of: members of the material, and the numbers of a step."""

    material: Material
    members: list[Member]
    rate: float
    momentum: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Contestant:
    """An optimizer in the race."""

    name: str
    title: str
    make: Callable[[Asked], Stepper]
    formula: Formula | None
    """None for the full metric, which has a gate of its own."""
    package: str = ""
    """Module it needs besides torch and this package."""
    install: str = ""
    """How to get that."""
    copies: Callable[[float], float] = lambda momentum: float(momentum > 0)
    """Tensors as large as the weights it holds, by momentum: to foresee whether it fits the memory."""
    always_remembers: bool = False
    """It is no rival of a step without momentum."""
    unit: bool = False
    """Its gate starts from rows of unit norm, which it does not make itself."""
    tangent: bool = False
    """Its gate is one step with gradients orthogonal to rows: with others it would be plain SGD."""
    compiles: bool = False
    """It takes long to make, and competes only where asked."""
    require: Callable[[], object] = lambda: None
    """Raises where it can be told without any weights that it cannot be made."""
    remark: str = ""
    """What is to be known of its momentum."""

    @functools.cache  # noqa: B019 - there are few, and they stay
    def missing(self, device: torch.device, dtype: torch.dtype) -> str:
        """Why it cannot compete there, tried on two small tensors; empty if it can."""
        if self.package and find_spec(self.package) is None:
            return f"not installed: {self.install}"
        if self.formula is None:
            return why_not(self.require)  # it would take a whole network to try
        return why_not(lambda: self._try(device, dtype))

    def _try(self, device: torch.device, dtype: torch.dtype) -> None:
        """Make it, and take a step if that needs no compiler."""
        trial = Case(name="trial", title="trial", weights=(Weight((2, 3)), Weight((3,), "plain")))
        material = Material(trial, device, dtype, symmetries=False)
        material.fill(unit=True, tangent=False)
        stepper = self.make(Asked(material=material, members=material.members, rate=0.1, momentum=0.9))
        if not self.compiles:
            stepper.step()


def why_not(make: Callable[[], object]) -> str:
    """What keeps an optimizer from being made, in a line; empty if nothing does."""
    try:
        make()
    except Exception as error:
        return first_line(error)
    return ""


def first_line(error: Exception) -> str:
    """An error in a line."""
    lines = str(error).strip().splitlines() or ["no reason given"]
    kind = "" if isinstance(error, OptionError) else f"{type(error).__name__}: "
    return f"{kind}{lines[0]}"[:300]

"""What is found on an example holds on inputs that take other paths, or is not found."""

import copy
import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from symmetry.hidden_paths import HIDDEN
from symmetry.other_paths import NETWORKS, Case
from symmetry.size_paths import SIZED
from symmetry.told_paths import TOLD
from symoptim import SymmetrySpec, discover
from symoptim.errors import EpsWarning, OptionError, PathWarning, SymmetryError, TraceError

pytestmark = pytest.mark.slow
ALL = NETWORKS | HIDDEN | SIZED | TOLD
EXACT, FELT = 1e-8, 5e-3
"""Changes of outputs, relative to the largest, that are rounding; those where eps may be felt."""


def wide(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.double()
    if hasattr(value, "extra"):
        return type(value)(ids=value.ids, extra=value.extra.double())
    return type(value)({name: wide(one) for name, one in value.items()}) if isinstance(value, dict) else value


def outputs(model: nn.Module, case: Case, *, train: bool) -> list[Tensor]:
    """Of all calls one after the other, with the same random numbers for whatever model."""
    model.train(train)
    found: list[Tensor] = []
    with torch.no_grad():
        for seed, arguments in enumerate((case.example, *case.others)):
            random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
            found.append(model(*copy.deepcopy(tree_map(wide, arguments))))
    return found


def made(case: Case) -> nn.Module:
    """A network of its own, for copies share the state of closures."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)  # not double(): a second way to a weight would lead to the old one
    try:
        return case.make().train(case.train)
    finally:
        torch.set_default_dtype(torch.float32)


def largest_change(case: Case, spec: SymmetrySpec) -> float:
    worst = 0.0
    for seed in range(2):
        plain = made(case)
        scaled = spec.rescale_(made(case), spec.random(seed=seed, spread=2.0))
        for train in (True, False) if case.train else (False,):
            pairs = zip(outputs(plain, case, train=train), outputs(scaled, case, train=train), strict=True)
            for one, other in pairs:
                same = (one == other) | (one.isnan() & other.isnan())
                size = float(one[one.isfinite()].abs().max()) if one.isfinite().any() else 1.0
                change = (one - other)[~same].abs()
                worst = max([worst, *(change / size).nan_to_num(torch.inf).tolist()])
    return worst


@pytest.mark.parametrize("name", ALL)
def test_what_is_found_holds_on_other_paths_too(name: str) -> None:
    case = ALL[name]
    model = made(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PathWarning)
        warnings.simplefilter("ignore", EpsWarning)
        warnings.simplefilter("ignore", UserWarning)  # torch's, of what the networks do
        try:
            spec = discover(model, tree_map(wide, case.example))
            change = largest_change(case, spec)
        except (TraceError, OptionError, SymmetryError) as error:
            refused: str | None = str(error)
        else:
            refused = None
    if refused is not None:
        assert "eps" in refused or "inputs" in refused, refused
        return
    assert change < (FELT if spec.approximate else EXACT)

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

from symoptim import SymmetrySpec, discover
from symoptim.errors import EpsWarning, PathWarning, SymmetryError
from tests.support.hidden_paths import HIDDEN
from tests.support.other_paths import NETWORKS, Case, mlp
from tests.support.same_operations import SAME_OPERATIONS
from tests.support.size_paths import SIZED
from tests.support.told_paths import TOLD

pytestmark = pytest.mark.slow
ALL = NETWORKS | HIDDEN | SIZED | TOLD | SAME_OPERATIONS
EXACT, FELT = 1e-8, 5e-3
"""Changes of outputs, relative to the largest, that are rounding; those where eps may be felt."""
FREE = 5
"""Hidden units of the plain network after each."""


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


class Followed(nn.Module):
    """A network, and a plain one after it, whose hidden units stay free whatever the first one does."""

    def __init__(self, network: nn.Module, width: int) -> None:
        super().__init__()
        self.network, self.plain = network, mlp(width, FREE)

    def forward(self, *inputs: Any) -> Tensor:
        return self.plain(self.network(*inputs))


def made(case: Case) -> nn.Module:
    """A network of its own, for copies share the state of closures."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)  # not double(): a second way to a weight would lead to the old one
    try:
        network = case.make()
        return (Followed(network, case.width) if case.width else network).train(case.train)
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


def found(case: Case, **options: Any) -> SymmetrySpec:
    return discover(made(case), tree_map(wide, case.example), **options)


def change_unless_refused(case: Case, spec: SymmetrySpec) -> float:
    try:
        return largest_change(case, spec)
    except SymmetryError:
        if not case.may_be_refused:
            raise
        return 0.0


@pytest.mark.parametrize("name", ALL)
def test_what_is_found_holds_on_other_paths_too(name: str) -> None:
    """Or the group is smaller than without a look at other paths, and says why."""
    case = ALL[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PathWarning)
        warnings.simplefilter("ignore", EpsWarning)
        warnings.simplefilter("ignore", UserWarning)  # torch's, of what the networks do
        spec, trusting = found(case), found(case, vouch=["*"])
        change = change_unless_refused(case, spec)
        lie = largest_change(case, trusting) if case.lies_if_vouched else None
    assert len(spec) >= case.found
    assert change < (FELT if spec.approximate else EXACT)
    assert len(trusting) <= len(spec) or spec.paths or spec.unreached
    assert lie is None or lie > FELT

"""Where eps is felt rescalings are left out, so that outputs stay what they were."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from symoptim.applications.canonicalize import canonicalize_
from symoptim.applications.equalize import equalize_
from symoptim.errors import EpsWarning, OptionError, SymmetryError
from symoptim.symmetry import reused, trials
from symoptim.symmetry.discover import discover
from symoptim.symmetry.eps_effect import EpsEffect
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.trials import difference

ACTING: list[Callable[..., Tensor]] = [canonicalize_, equalize_]


class Normalized(nn.Module):
    """Two branches, of which one is so small that the eps of its normalization is felt."""

    def __init__(self, small: float = 1e-3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, 8)
        self.one, self.other = nn.Linear(8, 6), nn.Linear(8, 6)
        self.norm, self.other_norm = nn.RMSNorm(6, eps=1e-6), nn.RMSNorm(6, eps=1e-6)
        self.head = nn.Linear(6, 4)
        with torch.no_grad():
            for parameter in self.other.parameters():
                parameter.mul_(small)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        return self.head(torch.relu(self.norm(self.one(x))) + torch.relu(self.other_norm(self.other(x))))


def a_network(small: float = 1e-3) -> tuple[nn.Module, Tensor, SymmetrySpec]:
    model, tokens = Normalized(small), torch.randint(20, (2, 5), generator=torch.Generator().manual_seed(0))
    return model, tokens, discover(model, (tokens,))


@pytest.mark.parametrize("act", ACTING)
def test_outputs_stay_and_what_was_held_back_is_said(act: Callable[..., Tensor]) -> None:
    model, tokens, spec = a_network()
    before = copy.deepcopy(model)
    with pytest.warns(
        EpsWarning, match=r"outputs would change by .*e-01, .* of .* rescalings were not applied"
    ):
        element = act(model, spec)
    assert difference([before(tokens)], [model(tokens)]) < 1.01e-3
    assert 0 < int((element == 0).sum()) < len(spec) / 2
    free = copy.deepcopy(before)
    act(free, spec, tolerance=math.inf)
    assert difference([before(tokens)], [free(tokens)]) > 0.1


@pytest.mark.parametrize("act", ACTING)
def test_where_eps_is_not_felt_nothing_is_held_back(act: Callable[..., Tensor]) -> None:
    model, tokens, spec = a_network(small=1.0)
    free, before = copy.deepcopy(model), model(tokens)
    assert torch.equal(act(model, spec), act(free, spec, tolerance=math.inf))
    assert difference([before], [model(tokens)]) < 1e-3


@pytest.mark.parametrize("act", ACTING)
def test_one_copy_is_enough_and_a_single_felt_generator_is_found_at_once(
    act: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.ReLU())]
    model, x = nn.Sequential(*layers, nn.RMSNorm(16), nn.Linear(16, 4)), torch.rand(2, 16)
    with torch.no_grad():
        for parameter in model[-4].parameters():
            parameter.mul_(1e-2)  # as small as eps, beside which only their common scale is felt
    spec, copies, measured = discover(model, (x,)), list[nn.Module](), list[Tensor]()

    def copied(model: nn.Module, *, wide: bool) -> nn.Module:
        copies.append(model)
        return copied_once(model, wide=wide)

    def change(felt: EpsEffect, element: Tensor) -> float:
        measured.append(element)
        return change_once(felt, element)

    change_once, copied_once = EpsEffect.change, reused.copied
    for module in (reused, trials):
        monkeypatch.setattr(module, "copied", copied)
    monkeypatch.setattr(EpsEffect, "change", change)
    with pytest.warns(EpsWarning, match=f"1 of {len(spec)} rescalings were not applied"):
        act(model, spec)
    assert len(copies) == 1
    assert len(measured) == 2


@pytest.mark.parametrize("act", ACTING)
def test_where_every_generator_is_felt_nothing_changes(act: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.LayerNorm(4, elementwise_affine=False, eps=1e-3))
    with torch.no_grad():
        model[0].weight.mul_(1e-3)  # far below eps
    spec = discover(model, (torch.randn(6, 3),))
    assert len(spec) == 1
    before = copy.deepcopy(model)
    with pytest.raises(SymmetryError, match="no rescaling could be applied"):
        act(model, spec)
    assert torch.equal(model[0].weight, before[0].weight)


def test_running_statistics_are_held_back_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).eval()
    with torch.no_grad():
        model[0].weight[0] *= 1e-3
        model[1].running_var[0] = 1e-6
    x = torch.randn(6, 3)
    spec, before = discover(model, (x,)), model(x)
    with pytest.warns(EpsWarning, match="rescalings were not applied"):
        element = canonicalize_(model, spec)
    assert difference([before], [model(x)]) < 1.01e-3
    assert int((element != 0).sum()) >= 8


def test_a_tolerance_is_a_size() -> None:
    model, _, spec = a_network()
    with pytest.raises(OptionError, match="tolerance must be a number above 0"):
        canonicalize_(model, spec, tolerance=0.0)

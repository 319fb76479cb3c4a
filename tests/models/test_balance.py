import copy
import math

import pytest
import torch
from torch import nn

from symoptim import balance_
from symoptim.errors import GeometryWarning, OptionError, SymmetryError, ZeroFilterError
from symoptim.symmetry.discover import discover


def test_every_filter_gets_unit_norm_and_nothing_else_changes() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 5, 2), nn.Flatten(), nn.Linear(5, 2)
    )
    others = {n: p.clone() for n, p in model.named_parameters() if p.ndim == 1}
    with pytest.warns(GeometryWarning, match="balance_ divides filters by their norms"):
        assert balance_(model) is model
    torch.testing.assert_close(model[0].weight.flatten(1).norm(dim=1), torch.ones(4))
    torch.testing.assert_close(model[2].weight.transpose(0, 1).flatten(1).norm(dim=1), torch.ones(5))
    torch.testing.assert_close(model[4].weight.norm(dim=1), torch.ones(2))
    assert all(torch.equal(model.get_parameter(name), old) for name, old in others.items())


def test_a_zero_filter_is_refused_and_nothing_is_changed() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    nn.init.zeros_(model[1].weight)
    before = model[0].weight.clone()
    with pytest.raises(ZeroFilterError, match=r"parameter '1.weight' has filters that are zero"):
        balance_(model)
    assert torch.equal(model[0].weight, before)


def test_the_classifier_may_be_balanced_by_columns() -> None:
    model = balance_(
        nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), classifier="columns", tolerance=math.inf
    )
    torch.testing.assert_close(model[0].weight.norm(dim=1), torch.ones(4))
    torch.testing.assert_close(model[1].weight.norm(dim=0), torch.ones(4))


def test_weights_too_small_to_square_in_float16_are_balanced_in_float32() -> None:
    model = nn.Linear(4, 2).half()
    nn.init.constant_(model.weight, 1e-4)
    torch.testing.assert_close(balance_(model, tolerance=math.inf).weight, torch.full((2, 4), 0.5).half())


def test_where_eps_is_felt_the_way_out_of_the_refusal_is_open() -> None:
    torch.manual_seed(0)
    x = 0.1 * torch.randn(32, 3)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, eps=1e-3), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight.mul_(100)
    spec, before = discover(model, (x,)), copy.deepcopy(model.state_dict())
    with pytest.raises(
        SymmetryError, match=r"outputs would change by .*inputs=, or accept more .*tolerance="
    ):
        balance_(model, spec=spec)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    balance_(model, spec=spec, tolerance=1.0, inputs=[(x,)])
    torch.testing.assert_close(model[0].weight.norm(dim=1), torch.ones(4))


def test_a_tolerance_without_symmetries_is_refused() -> None:
    with pytest.raises(OptionError, match=r"inputs= and tolerance= .* spec="):
        balance_(nn.Linear(2, 2), tolerance=0.5)


def test_it_says_that_it_changes_what_the_model_computes_and_how_not_to() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.rand(5, 3)
    with torch.no_grad():
        model[0].weight.div_(5 * model[0].weight.norm(dim=1, keepdim=True))
    before, weights = model(x), copy.deepcopy(model.state_dict())
    words = r"factor of up to 5,.*: 0\.weight, 2\.weight\. Give spec=symoptim\.discover.*tolerance=math\.inf"
    with pytest.raises(GeometryWarning, match=words):
        balance_(model)
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    torch.testing.assert_close(balance_(model, spec=discover(model, (x,)))(x), before)
    balance_(balance_(model, tolerance=math.inf))  # nothing is left to change, or to be said

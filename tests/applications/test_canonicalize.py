"""Canonical forms: one per orbit, the same function, the minimum they are said to be."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from symoptim.applications import newton
from symoptim.applications.canonicalize import canonical_element, canonicalize_, parameters_of
from symoptim.errors import SymmetryError
from symoptim.symmetry.discover import discover
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.trials import difference
from tests.support.networks import NETWORKS, distance
from tests.support.sampling import one_in
from tests.support.soundness import outputs
from tests.support.zoo import caught, for_every_animal, group_of

HUNDRED = math.log(100)


def small() -> tuple[nn.Module, SymmetrySpec]:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    return model, discover(model, (torch.rand(5, 3, dtype=torch.float64),))


def require_canonical(name: str) -> None:
    (model, arguments, _), spec = caught(name), group_of(name)
    canonical = copy.deepcopy(model)
    element = canonicalize_(canonical, spec)
    assert element.shape == (len(spec),)
    assert difference(outputs(model, arguments), outputs(canonical, arguments)) < 1e-10
    for seed in range(2):
        rescaled = spec.rescale_(copy.deepcopy(model), spec.random(seed=seed, spread=HUNDRED))
        canonicalize_(rescaled, spec)
        assert distance(canonical, rescaled) < 1e-10
    again = copy.deepcopy(canonical)
    assert float(canonicalize_(again, spec).abs().max() if len(spec) else 0.0) < 1e-9
    assert distance(canonical, again) < 1e-12


@pytest.mark.parametrize("name", one_in(2, NETWORKS))
def test_rescaled_copies_have_the_same_canonical_form_and_the_same_outputs(name: str) -> None:
    require_canonical(name)


@pytest.mark.slow
@for_every_animal
def test_every_animal_has_a_canonical_form(name: str) -> None:
    require_canonical(name)


def objective(spec: SymmetrySpec, parameters: dict[str, Tensor], element: Tensor) -> Tensor:
    """The formula, literally."""
    total = torch.zeros((), dtype=torch.float64)
    for name, log_scale in log_scales(spec, element).items():
        if name in parameters:
            tensor, moved = parameters[name], log_scale.expand(parameters[name].shape)
            kappa = tensor.shape[0] / tensor.numel() if tensor.dim() > 1 else 1.0
            terms = tensor.square() / 2 * (2 * moved).exp() - kappa * moved
            total = total + terms[tensor != 0].sum()
    return total


def log_scales(spec: SymmetrySpec, element: Tensor) -> dict[str, Tensor]:
    """Those of the group, in a way that autograd can follow."""
    found: dict[str, Tensor] = {}
    for name in spec.tensors:
        columns = [spec.log_scales(one, [name])[name] for one in torch.eye(len(spec), dtype=torch.float64)]
        found[name] = torch.stack(columns, dim=-1) @ element
    return found


@pytest.mark.parametrize("name", ["arch2 training", "residual mlp", "soft experts", "tied embeddings"])
def test_the_gradient_vanishes_and_every_other_element_is_worse(name: str) -> None:
    (model, _, _), spec = caught(name), group_of(name)
    parameters = parameters_of(spec.rescale_(model, spec.random(seed=3, spread=2.0)), spec)
    element = canonical_element(parameters, spec).requires_grad_()
    lowest = objective(spec, parameters, element)
    (gradient,) = torch.autograd.grad(lowest, element)
    lowest, element = lowest.detach(), element.detach()
    assert float(gradient.abs().max()) < 1e-10
    for seed in range(5):
        for size in (1e-2, 3.0):
            other = element + spec.random(seed=seed, spread=size)
            assert float(objective(spec, parameters, other)) > float(lowest)


def test_rows_come_out_with_a_norm_of_about_one() -> None:
    model, spec = small()
    canonicalize_(spec.rescale_(model, spec.random(spread=HUNDRED)), spec)
    norms = model[0].weight.detach().norm(dim=1)
    assert 0.3 < float(norms.min()) <= float(norms.max()) < 3


def test_units_that_nothing_reaches_stay_where_they_are() -> None:
    model, spec = small()
    with torch.no_grad():
        for tensor in (model[0].weight[1], model[0].bias[1:2], model[2].weight[:, 1]):
            tensor.zero_()
    element = canonicalize_(model, spec)
    assert int((element == 0).sum()) == 1
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e200])
def test_weights_that_are_not_finite_are_named_and_nothing_changes(bad: float) -> None:
    model, spec = small()
    with torch.no_grad():
        model[2].weight[0, 0] = bad
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(SymmetryError, match=r"'2\.weight' has entries that are not finite"):
        canonicalize_(model, spec)
    assert all(
        torch.equal(before[key].nan_to_num(), new.nan_to_num()) for key, new in model.state_dict().items()
    )


def test_a_solution_that_is_not_found_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model, spec = small()
    monkeypatch.setattr(newton, "STEPS", 1)
    with pytest.raises(SymmetryError, match="in 1 steps: the relative gradient is"):
        canonicalize_(spec.rescale_(model, spec.random(spread=HUNDRED)), spec)


def test_another_models_group_is_refused() -> None:
    _, spec = small()
    with pytest.raises(SymmetryError, match="another model's symmetries"):
        canonicalize_(nn.Linear(3, 2), spec)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_costs_its_own_rounding_alone(dtype: torch.dtype) -> None:
    model, spec = small()
    rounded = copy.deepcopy(model).to(dtype)
    canonicalize_(rounded, spec)
    canonicalize_(model, spec)
    assert all(parameter.dtype == dtype for parameter in rounded.parameters())
    assert distance(model, rounded.double()) < 8 * torch.finfo(dtype).eps


def test_float16_at_both_ends_of_its_range_is_no_obstacle() -> None:
    model, spec = small()
    with torch.no_grad():
        for tensor in (model[0].weight, model[0].bias):
            tensor.copy_(torch.randint(1, 8, tensor.shape) * 2.0**-24)  # factors are beyond its range
        model[2].weight.fill_(6e4)
    rounded = copy.deepcopy(model).half()
    canonicalize_(rounded, spec)
    canonicalize_(model, spec)
    assert distance(model, rounded.double()) < 2 * torch.finfo(torch.float16).eps


def test_scales_a_hundred_orders_apart_are_no_obstacle() -> None:
    model, spec = small()
    canonical = copy.deepcopy(model)
    canonicalize_(canonical, spec)
    canonicalize_(spec.rescale_(model, spec.random(spread=115.0)), spec)
    assert distance(canonical, model) < 1e-10


def test_a_model_without_values_is_refused() -> None:
    model, spec = small()
    with pytest.raises(SymmetryError, match=r"'0\.weight' has no values \(meta device\)"):
        canonicalize_(model.to("meta"), spec)

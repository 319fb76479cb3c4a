"""Equalization: the same function, smaller peaks, whatever the scaling before."""

import copy
import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from symoptim.applications.equalize import equalize_, objective
from symoptim.applications.exponential_sums import entry_sums, moving_terms
from symoptim.errors import OptionError
from symoptim.symmetry.discover import discover
from symoptim.symmetry.trials import difference
from tests.support.networks import distance
from tests.support.soundness import outputs
from tests.support.zoo import caught, group_of

NETWORKS = ["grouped and depthwise", "resnet training", "llama"]


def rounded(weight: Tensor, bits: int = 8) -> Tensor:
    """Weights on a grid with one step size."""
    step = weight.abs().max() / (2 ** (bits - 1) - 1)
    return (weight / step).round() * step


def error(model: nn.Module, arguments: tuple[Tensor, ...]) -> float:
    """Change of the outputs by rounding the weights to 8 bits, relative."""
    quantized = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in quantized.parameters():
            if parameter.dim() > 1:
                parameter.copy_(rounded(parameter))
    plain, new = outputs(model, arguments)[0], outputs(quantized, arguments)[0]
    return float((new - plain).norm() / plain.norm())


def peaks(model: nn.Module) -> float:
    """Sum over tensors of the logarithm of largest entry over root mean square."""
    weights = [parameter.detach() for parameter in model.parameters() if parameter.dim() > 1]
    return sum(float((w.abs().max() / w.square().mean().sqrt()).log()) for w in weights)


@pytest.mark.parametrize("name", NETWORKS)
def test_peaks_and_the_error_of_8_bits_shrink_and_outputs_stay(name: str) -> None:
    (model, arguments, _), spec = caught(name), group_of(name)
    rescaled = spec.rescale_(copy.deepcopy(model), spec.random(spread=math.log(5)))
    equalized = copy.deepcopy(rescaled)
    equalize_(equalized, spec)
    assert difference(outputs(model, arguments), outputs(equalized, arguments)) < 1e-10
    assert peaks(equalized) < min(peaks(model), peaks(rescaled))
    assert error(equalized, arguments) < error(rescaled, arguments)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_comes_out_does_not_depend_on_the_scaling_before(name: str) -> None:
    (model, _, _), spec = caught(name), group_of(name)
    rescaled = spec.rescale_(copy.deepcopy(model), spec.random(spread=math.log(5)))
    equalize_(model, spec)
    equalize_(rescaled, spec)
    assert distance(model, rescaled) < 1e-6


def test_the_gradient_is_that_of_the_objective() -> None:
    (model, _, _), spec = caught("llama"), group_of("llama")
    weights = {name: p.detach().abs() for name, p in model.named_parameters() if p.dim() > 1}
    terms = moving_terms(spec, weights)
    peaked = [
        (entry_sums(weights[n] ** 8, terms[n]), entry_sums(weights[n].square(), terms[n])) for n in terms
    ]
    element, direction = spec.random(seed=1), spec.random(seed=2)
    _, gradient = objective(spec, peaked, 8.0, element)
    ahead, behind = (objective(spec, peaked, 8.0, element + h * direction)[0] for h in (1e-5, -1e-5))
    assert (ahead - behind) / 2e-5 == pytest.approx(float(gradient @ direction), rel=1e-6)


@pytest.mark.parametrize("name", ["mlp, tanh", "tied autoencoder"])
def test_without_symmetries_nothing_changes(name: str) -> None:
    (model, _, _), spec = caught(name), group_of(name)
    assert len(spec) == 0
    before = copy.deepcopy(model)
    assert equalize_(model, spec).shape == (0,)
    assert distance(before, model) == 0


def test_without_weights_to_balance_nothing_changes() -> None:
    (model, _, _), spec = caught("residual mlp"), group_of("residual mlp")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(parameter.dim() == 1)
    before = copy.deepcopy(model)
    assert any(bool(parameter.any()) for parameter in model.parameters())
    assert torch.equal(equalize_(model, spec), torch.zeros(len(spec), dtype=torch.float64))
    assert distance(before, model) == 0


def test_a_power_that_sees_no_peaks_is_refused() -> None:
    (model, _, _), spec = caught("arch1"), group_of("arch1")
    with pytest.raises(OptionError, match=r"power must be a finite number above 2, got 2\.0"):
        equalize_(model, spec, power=2.0)


def perceptron(sizes: tuple[int, ...]) -> nn.Sequential:
    """An ordinary network with ReLU, in torch's initialization."""
    layers = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize(
    "sizes", [(1, 8, 4, 5), (3, 4, 5, 2), (2, 16, 3, 1), (8, 16, 16, 4), (20, 64, 32, 10)]
)
def test_perceptrons_of_any_seed_are_balanced(sizes: tuple[int, ...]) -> None:
    x = torch.rand(5, sizes[0])
    spec = discover(perceptron(sizes), (x,))
    for seed in range(20):
        torch.manual_seed(seed)
        model = perceptron(sizes)
        before = model(x)
        element = equalize_(model, spec)
        assert element.abs().max() < 5
        torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)
        weights = {name: p.detach().double() for name, p in model.named_parameters() if p.dim() > 1}
        terms = moving_terms(spec, weights)
        blocks = [
            (
                entry_sums((w / w.abs().max()) ** 8, terms[name]),
                entry_sums((w / w.abs().max()).square(), terms[name]),
            )
            for name, w in weights.items()
        ]
        _, gradient = objective(spec, blocks, 8.0, torch.zeros(len(spec), dtype=torch.float64))
        assert gradient.abs().max() < 1e-5  # weights are rounded to float32

from collections.abc import Callable

import pytest
import torch
from torch import nn

from symoptim import models
from symoptim.errors import OptionError
from symoptim.geometry.rescaling import Arch1Scales, Arch2Scales
from symoptim.models.pairwise import PairwiseMax


@pytest.mark.parametrize("make", [models.arch1, models.arch2])
def test_shapes_are_the_papers(make: Callable[..., models.PairwiseNetwork]) -> None:
    network = make(depth=4)
    assert [tuple(w.shape) for w in network.weights().hidden] == [(64, 784)] + [(64, 32)] * 3
    assert tuple(network.classifier.weight.shape) == (10, 32)
    assert network(torch.rand(3, 1, 28, 28)).shape == (3, 10)


@pytest.mark.parametrize(("depth", "width", "classes"), [(1, 2, 3), (7, 10, 2)])
@pytest.mark.parametrize("make", [models.arch1, models.arch2])
def test_any_depth_and_width_will_do(
    make: Callable[..., models.PairwiseNetwork], depth: int, width: int, classes: int
) -> None:
    network = make(depth, inputs=5, width=width, classes=classes)
    assert network(torch.rand(4, 5)).shape == (4, classes)


def test_arch1_computes_what_the_paper_writes() -> None:
    network = models.arch1(2, inputs=5, width=6, classes=3)
    x = torch.rand(4, 5)
    features = x
    for w in network.weights().hidden:
        h = (features @ w.T).clamp(min=0)
        features = torch.stack([torch.maximum(h[:, 2 * k], h[:, 2 * k + 1]) for k in range(3)], dim=1)
    torch.testing.assert_close(network(x), features @ network.classifier.weight.T)


def test_arch2_normalizes_between_filters_and_relu() -> None:
    network = models.arch2(1, inputs=5, width=6, classes=3, eps=1e-3)
    x = torch.rand(40, 5)
    h = x @ network.weights().hidden[0].T
    b = (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-3).sqrt()
    pooled = PairwiseMax()(b.clamp(min=0))
    torch.testing.assert_close(network(x), pooled @ network.classifier.weight.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [models.arch1, models.arch2])
def test_networks_start_balanced_and_without_biases(
    make: Callable[..., models.PairwiseNetwork],
) -> None:
    network = make(3)
    for weight in (*network.weights().hidden, network.classifier.weight):
        torch.testing.assert_close(weight.norm(dim=1), torch.ones(len(weight)))
    biases = [m for m in network.modules() if isinstance(m, nn.Linear) and m.bias is not None]
    assert not biases


def test_scales_are_of_the_architectures_own_group() -> None:
    one, two = models.arch1(3, width=8).random_scales(seed=0), models.arch2(3, width=8).random_scales(seed=0)
    assert isinstance(one, Arch1Scales)
    assert isinstance(two, Arch2Scales)
    assert one.layers.shape == (2,)
    assert one.pairs.shape == (4,)
    assert two.rows.shape == (3, 8)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"depth": -1}, "depth must be at least 1, got -1"),
        ({"width": 7}, "width must be an even number >= 2.*got 7"),
        ({"width": 0}, "width must be an even number"),
        ({"classes": 0}, "inputs and classes must be at least 1, got 784 and 0"),
    ],
)
@pytest.mark.parametrize("make", [models.arch1, models.arch2])
def test_sizes_that_cannot_be_pooled_are_refused(
    make: Callable[..., models.PairwiseNetwork], options: dict[str, int], says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        make(**options)


@pytest.mark.parametrize("eps", [0.0, -1.0, float("nan")])
def test_batch_norm_needs_an_eps(eps: float) -> None:
    with pytest.raises(OptionError, match="eps must be above 0, got"):
        models.arch2(eps=eps)

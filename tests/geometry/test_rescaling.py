import copy

import pytest
import torch

from symoptim.geometry.rescaling import Arch2Scales, Weights, act, inverse, log_uniform
from tests.support.trajectories import network


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("architecture", [1, 2])
def test_rescaling_changes_weights_and_not_the_function(architecture: int, depth: int) -> None:
    model = network(architecture, depth)
    moved = copy.deepcopy(model)
    moved.rescale_(moved.random_scales(seed=1))
    x = torch.randn(20, 64, dtype=torch.float64)
    assert not torch.allclose(model.weights().hidden[-1], moved.weights().hidden[-1], rtol=0.1)
    torch.testing.assert_close(moved(x), model(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("architecture", [1, 2])
def test_inverse_undoes_the_action(architecture: int) -> None:
    model = network(architecture, 3)
    scales = model.random_scales(seed=1)
    back = act(act(model.weights(), scales), inverse(scales))
    torch.testing.assert_close(back, model.weights())


def test_scales_of_a_batch_act_on_its_members() -> None:
    networks = [network(1, 3, seed) for seed in range(4)]
    scales = [n.random_scales(seed=i) for i, n in enumerate(networks)]
    stacked = Weights(
        tuple(map(torch.stack, zip(*(n.weights().hidden for n in networks), strict=True))),
        torch.stack([n.classifier.weight for n in networks]),
    )
    together = act(stacked, type(scales[0])(*map(torch.stack, zip(*scales, strict=True))))
    alone = act(networks[2].weights(), scales[2])
    torch.testing.assert_close(together.classifier[2], alone.classifier)
    for a, b in zip(together.hidden, alone.hidden, strict=True):
        torch.testing.assert_close(a[2], b)


def test_a_negative_scale_changes_the_function_behind_batch_norm() -> None:
    """The paper allows any real number; a negative one flips the normalized feature."""
    model = network(2, 1)
    x = torch.randn(20, 64, dtype=torch.float64)
    before = model(x)
    rows = torch.ones(1, 64, dtype=torch.float64)
    rows[0, 0] = -1
    assert not torch.allclose(model.rescale_(Arch2Scales(rows))(x), before)


def test_log_uniform_scales_fill_their_range() -> None:
    scales = log_uniform((10_000,), low=1e-3, high=1e3, seed=0)
    assert 1e-3 <= scales.min() < 2e-3
    assert 5e2 < scales.max() <= 1e3
    assert abs(scales.log().mean()) < 0.1

"""What batch normalization leaves behind in training mode is right in evaluation."""

import copy

import pytest
import torch
from torch import nn

from symoptim.symmetry.discover import discover


def with_bias(*, track_running_stats: bool = True, eps: float = 1e-30) -> nn.Sequential:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4, eps=eps, track_running_stats=track_running_stats)
    model = nn.Sequential(nn.Linear(3, 4), norm, nn.ReLU(), nn.Linear(4, 2)).double()
    nn.init.uniform_(model[0].bias, 1, 2)
    return model


@pytest.mark.parametrize("recorded", [False, True])
def test_a_bias_before_batch_norm_goes_with_its_row_where_a_mean_is_kept(
    recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if recorded:
        monkeypatch.setattr(torch.export, "export", None)
    model, inputs = with_bias(), torch.randn(8, 3, dtype=torch.float64)
    for _ in range(5):
        model(inputs)
    spec = discover(model, (inputs,))
    assert bool(spec.recorded) == recorded
    assert len(spec) == 4 + 4  # rows with their biases, and gains
    rescaled = spec.rescale_(copy.deepcopy(model), spec.random(seed=1, spread=2.0))
    torch.testing.assert_close(rescaled(inputs), model(inputs), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(rescaled.eval()(inputs), model.eval()(inputs), rtol=1e-10, atol=1e-12)


def test_a_bias_before_batch_norm_is_free_where_no_mean_is_kept() -> None:
    model, inputs = with_bias(track_running_stats=False), torch.randn(8, 3, dtype=torch.float64)
    assert len(discover(model, (inputs,))) == 4 + 4 + 4


@pytest.mark.parametrize(("training", "number"), [(True, 4), (False, 8)])
def test_a_large_eps_cannot_be_scaled_away(training: bool, number: int) -> None:
    model, inputs = with_bias(eps=0.5).train(training), torch.randn(8, 3, dtype=torch.float64)
    spec = discover(model, (inputs,))
    assert len(spec) == number  # gains; in evaluation also rows with the mean, but not the variance
    assert "1.running_var" not in spec.tensors or not bool(spec.moves(["1.running_var"]).any())
    assert not spec.approximate
    assert any("batch_norm" in name for name in spec.pinned)
    rescaled = spec.rescale_(copy.deepcopy(model), spec.random(seed=1, spread=2.0))
    torch.testing.assert_close(rescaled(inputs), model(inputs), rtol=1e-10, atol=1e-12)

import copy

import pytest
import torch
from torch import Tensor, nn

from symoptim.paper.segnet.batch_norm import reestimate_

SIZES = (4, 4, 2)  # of batches; every batch counts the same


def a_network() -> nn.Sequential:
    first, second = nn.BatchNorm2d(2, momentum=0.3), nn.BatchNorm2d(3, momentum=0.2)
    return nn.Sequential(first, nn.Conv2d(2, 3, 2), second, nn.ReLU()).double()


def some_batches() -> list[Tensor]:
    return [5 * torch.randn(size, 2, 4, 5, dtype=torch.float64) + 3 for size in SIZES]


def average(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean(dim=0)


def test_statistics_are_exact_averages_over_the_batches() -> None:
    model, batches = a_network(), some_batches()
    reestimate_(model, batches)
    inputs = batches
    for norm, convolution in ((model[0], model[1]), (model[2], None)):
        axes = (0, 2, 3)
        torch.testing.assert_close(norm.running_mean, average([x.mean(dim=axes) for x in inputs]))
        torch.testing.assert_close(norm.running_var, average([x.var(dim=axes) for x in inputs]))
        if convolution is not None:  # what comes next is normalized by the statistics of its own batch
            deviations = [(x.var(dim=axes, correction=0, keepdim=True) + norm.eps).sqrt() for x in inputs]
            means = [x.mean(dim=axes, keepdim=True) for x in inputs]
            normalized = zip(inputs, means, deviations, strict=True)
            inputs = [convolution((x - mean) / deviation).detach() for x, mean, deviation in normalized]


def test_what_the_network_was_before_makes_no_difference() -> None:
    fresh, batches = a_network(), some_batches()
    used = copy.deepcopy(fresh).eval()
    for norm in (used[0], used[2]):
        norm.running_mean.fill_(7.0)
        norm.running_var.fill_(torch.nan)
        norm.num_batches_tracked.fill_(99)
    for model in (fresh, used):
        reestimate_(model, batches)
    for name, value in fresh.state_dict().items():
        assert torch.equal(used.state_dict()[name], value), name


def test_parameters_stay_as_they_are_and_get_no_gradients() -> None:
    model = a_network()
    before = copy.deepcopy(model)
    reestimate_(model, some_batches())
    for one, other in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.grad is None


def test_momentum_is_put_back_and_the_network_is_in_evaluation_mode() -> None:
    model = a_network()
    reestimate_(model, some_batches())
    assert (model[0].momentum, model[2].momentum) == (0.3, 0.2)
    assert not any(module.training for module in model.modules())


def test_even_when_the_network_cannot_be_called() -> None:
    model = a_network()

    def fail(batch: Tensor) -> None:
        assert model.training
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        reestimate_(model, some_batches(), call=fail)
    assert (model[0].momentum, model[2].momentum) == (0.3, 0.2)
    assert not any(module.training for module in model.modules())


def test_the_network_is_called_the_way_it_is_asked_to_be() -> None:
    model, batches = a_network(), some_batches()
    expected = copy.deepcopy(model)
    reestimate_(expected, [batch + 1 for batch in batches])

    def call(batch: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()  # which would take memory for nothing
        return model(batch + 1)

    reestimate_(model, batches, call=call)
    assert torch.equal(model[2].running_var, expected[2].running_var)


def test_a_network_without_batch_normalization_is_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Dropout())
    before = copy.deepcopy(model.state_dict())
    called: list[Tensor] = []
    reestimate_(model, some_batches(), call=called.append)
    assert not called
    assert not model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])

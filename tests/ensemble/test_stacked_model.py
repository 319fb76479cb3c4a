"""Stacked networks compute what each would alone; networks that cannot be stacked or trained are refused."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from symoptim.ensemble import Ensemble, Split
from symoptim.ensemble.stacked_model import StackedModel, check_model
from symoptim.errors import OptionError
from symoptim.models import arch1, arch2
from symoptim.support.seeds import seeded
from tests.support.small import PIXELS, a_run, small_data, small_network

SEEDS = [3, 1, 3]


def alone(factory, seed: int) -> nn.Module:
    with seeded(seed):
        return factory()


class Convolutional(nn.Sequential):
    """A network that is none of ours: convolution, group normalization, biases, a frozen layer."""

    def __init__(self) -> None:
        super().__init__(
            nn.Unflatten(1, (1, 3, 4)),
            nn.Conv2d(1, 4, 2),
            nn.BatchNorm2d(4),
            nn.GELU(),
            nn.GroupNorm(2, 4),
            nn.Flatten(),
            nn.Linear(24, 4),
        )
        self[1].bias.requires_grad_(False)
        self.double()


@pytest.mark.parametrize("factory", [small_network("arch1"), small_network("arch2"), Convolutional])
@pytest.mark.parametrize("training", [True, False])
def test_a_stack_computes_what_its_networks_compute(factory, training: bool) -> None:
    stack = StackedModel(factory, SEEDS)
    inputs = torch.rand(2, len(SEEDS), 10, PIXELS, dtype=torch.float64)
    stack.scores(inputs[0], training=True)  # moves the running averages, which evaluation then uses
    scores = stack.scores(inputs[1], training=training)
    for row, seed in enumerate(SEEDS):
        model = alone(factory, seed)
        model(inputs[0, row])
        torch.testing.assert_close(scores[row], model.train(training)(inputs[1, row]), rtol=1e-12, atol=1e-12)
        for name, buffer in model.named_buffers():
            torch.testing.assert_close(stack.buffers[name][row], buffer, rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_each_network_alone() -> None:
    stack = StackedModel(Convolutional, SEEDS)
    inputs = torch.rand(len(SEEDS), 10, PIXELS, dtype=torch.float64)
    trained = stack.trainable()
    assert "1.bias" not in trained
    loss = stack.scores(inputs, training=True).square().sum()
    gradients = dict(zip(trained, torch.autograd.grad(loss, list(trained.values())), strict=True))
    for row, seed in enumerate(SEEDS):
        model = alone(Convolutional, seed)
        model(inputs[row]).square().sum().backward()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient[row], model.get_parameter(name).grad, rtol=1e-9, atol=1e-11)


def test_keeping_rows_keeps_their_weights_and_averages() -> None:
    stack = StackedModel(small_network(), SEEDS)
    stack.scores(torch.rand(3, 10, PIXELS, dtype=torch.float64), training=True)
    before = {**stack.parameters, **stack.buffers}
    stack.keep(torch.tensor([0, 2]))
    for name, tensor in {**stack.parameters, **stack.buffers}.items():
        assert torch.equal(tensor, before[name][[0, 2]])
    assert all(tensor.is_leaf and tensor.requires_grad for tensor in stack.trainable().values())


class Tied(nn.Module):
    """A network that uses one weight and one buffer under two names each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(PIXELS, PIXELS, bias=False), nn.Linear(PIXELS, PIXELS, bias=False)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(PIXELS)
        self.again = self.norm
        self.double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.again(self.second(torch.relu(self.norm(self.first(inputs)))))


def test_tied_weights_stay_tied() -> None:
    stack = StackedModel(Tied, SEEDS)
    inputs = torch.rand(len(SEEDS), 10, PIXELS, dtype=torch.float64)
    scores = stack.scores(inputs, training=True)
    states = stack.network_states(range(len(SEEDS)))
    for row, (seed, state) in enumerate(zip(SEEDS, states, strict=True)):
        model = alone(Tied, seed)
        torch.testing.assert_close(scores[row], model(inputs[row]), rtol=1e-12, atol=1e-12)
        assert set(state) == set(model.state_dict())
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-12, atol=1e-12)


def test_a_network_instead_of_its_factory_is_refused() -> None:
    with pytest.raises(OptionError, match=r"give it `lambda: Linear\(\.\.\.\)`"):
        StackedModel(nn.Linear(3, 2), SEEDS)  # pyright: ignore


def test_a_network_that_draws_random_numbers_is_refused() -> None:
    stack = StackedModel(lambda: nn.Sequential(nn.Linear(3, 2), nn.Dropout()), SEEDS)
    with pytest.raises(OptionError, match=r"dropout.*depend on the runs beside it"):
        stack.scores(torch.rand(3, 5, 3), training=True)


def test_other_errors_of_a_network_come_through() -> None:
    with pytest.raises(RuntimeError, match="Expected size"):
        StackedModel(lambda: nn.Linear(3, 2), SEEDS).scores(torch.rand(3, 5, 4), training=True)


MISFITS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "too many pixels": (
        lambda: arch2(2, inputs=PIXELS + 1, width=8, classes=4).double(),
        rf"cannot take images of shape \({PIXELS},\), torch.float64: .*cannot be multiplied",
    ),
    "another precision": (
        lambda: arch1(2, inputs=PIXELS, width=8, classes=4),
        r"cannot take images of shape .*torch.float64",
    ),
    "too few classes": (
        lambda: arch2(2, inputs=PIXELS, width=8, classes=3).double(),
        "labels go up to 3, but the network has scores for 0 to 2: give it 4 outputs",
    ),
    "no scores": (
        lambda: nn.Sequential(nn.Linear(PIXELS, 4), nn.Flatten(0)).double(),
        r"turns images \(30, 12\) into \(120,\)",
    ),
    "a tuple": (lambda: nn.LSTM(PIXELS, 4).double(), r"turns images \(30, 12\) into tuple"),
    "an axis too few": (
        lambda: nn.Sequential(nn.Flatten(2), nn.Linear(PIXELS, 4)).double(),
        r"cannot take images of shape \(12,\)",
    ),
}


@pytest.mark.parametrize(("network", "message"), MISFITS.values(), ids=MISFITS)
def test_a_network_that_does_not_fit_the_data_is_refused(
    network: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        Ensemble({"one": a_run()}, network, small_data(), batch=30)


class InTens(nn.Module):
    """Knows batches of ten, thirty and so on only, of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(PIXELS, 9).double()  # more scores than there are classes

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.linear(images.double().view(-1, 10, PIXELS)).flatten(0, 1)


@pytest.mark.parametrize("tested", [0, 60])
def test_the_check_asks_for_no_more_than_training_does(tested: int) -> None:
    data = small_data()
    images = (255 * data.train_images).byte()
    odd = Split(images, data.train_labels, images[:tested], data.test_labels[:tested] + 20)
    ensemble = Ensemble({"one": a_run("b-sgd", rate=1e-5)}, InTens, odd, batch=10, test=tested > 0)
    assert torch.isfinite(torch.tensor(ensemble.train_epoch()["one"].epoch.loss))


def test_the_check_leaves_the_network_as_it_is() -> None:
    stack = StackedModel(lambda: arch2(2, inputs=PIXELS, width=8, classes=4).double(), [0, 1])
    before = {name: tensor.clone() for name, tensor in {**stack.parameters, **stack.buffers}.items()}
    check_model(stack, small_data(), 30)
    assert all(torch.equal(before[n], t) for n, t in {**stack.parameters, **stack.buffers}.items())

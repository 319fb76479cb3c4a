"""A network and images that do not go together are refused before anything is trained."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from symoptim.ensemble.fit import require_fit
from symoptim.ensemble.stack import Stack
from symoptim.ensemble.training import Ensemble
from symoptim.errors import OptionError
from symoptim.models import arch1, arch2
from symoptim.paper.data.split import Split
from tests.support.small import PIXELS, a_run, small_data

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
def test_what_does_not_fit_is_named(network: Callable[[], nn.Module], message: str) -> None:
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
def test_a_look_asks_for_no_more_than_training_does(tested: int) -> None:
    data = small_data()
    images = (255 * data.train_images).byte()
    odd = Split(images, data.train_labels, images[:tested], data.test_labels[:tested] + 20)
    ensemble = Ensemble({"one": a_run("b-sgd", rate=1e-5)}, InTens, odd, batch=10, test=tested > 0)
    assert torch.isfinite(torch.tensor(ensemble.train_epoch()["one"].epoch.loss))


def test_a_look_leaves_the_network_as_it_is() -> None:
    stack = Stack(lambda: arch2(2, inputs=PIXELS, width=8, classes=4).double(), [0, 1])
    before = {name: tensor.clone() for name, tensor in {**stack.parameters, **stack.buffers}.items()}
    require_fit(stack, small_data(), 30)
    assert all(torch.equal(before[n], t) for n, t in {**stack.parameters, **stack.buffers}.items())

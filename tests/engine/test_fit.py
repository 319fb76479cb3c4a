"""A network and images that do not go together are refused before anything is trained."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from small import PIXELS, a_run, small_data
from symoptim.engine.training import Ensemble
from symoptim.errors import OptionError
from symoptim.models import arch1, arch2

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
        r"turns images \(2, 12\) into \(8,\)",
    ),
}


@pytest.mark.parametrize(("network", "message"), MISFITS.values(), ids=MISFITS)
def test_what_does_not_fit_is_named(network: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Ensemble({"one": a_run()}, network, small_data(), batch=30)


def test_to_look_draws_no_numbers_and_leaves_the_network_as_it_is() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    ensemble = Ensemble(
        {"one": a_run()}, lambda: arch2(2, inputs=PIXELS, width=8, classes=4).double(), small_data(), batch=30
    )
    assert torch.equal(torch.rand(4), expected)
    assert ensemble.trainer.stack.template.training

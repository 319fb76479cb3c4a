"""Models without values, on the meta device."""

import torch
from torch import Tensor, nn

from symoptim.symmetry.discover import discover
from tests.support.zoo.animal import Lambda, weight


def test_batch_normalization_in_evaluation_is_the_same_on_the_meta_device() -> None:
    def found(device: str) -> int:
        with torch.device(device):
            model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 1)).eval()
            inputs = (torch.ones(2, 2, 4, 4),)
        return len(discover(model, inputs))

    assert found("meta") == found("cpu") > 0


def test_places_that_a_model_counts_are_known_on_the_meta_device() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(torch.relu(self.first(x)) * self.table[places])

    def found(device: str) -> int:
        with torch.device(device):
            model = Lambda(forward, first=nn.Linear(3, 4), table=weight(3, 4), head=nn.Linear(4, 2))
            inputs = (torch.ones(2, 3, 3),)
        return len(discover(model, inputs))

    assert found("meta") == found("cpu") > 0


def test_a_model_that_asks_for_values_is_traced_on_the_meta_device() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting() and bool((x > 0).all()):
            x = x.clone()
        return self.head(torch.relu(self.first(x)))

    with torch.device("meta"):
        model = Lambda(forward, first=nn.Linear(3, 4), head=nn.Linear(4, 2))
        inputs = (torch.ones(2, 3),)
    spec = discover(model, inputs)
    assert len(spec) == 4
    assert "only exported passes are known" in str(spec.paths)


def test_a_constant_of_the_model_has_no_values_on_the_meta_device() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.first(x)) * torch.tensor(2.0, device=x.device))

    with torch.device("meta"):
        model = Lambda(forward, first=nn.Linear(3, 4), head=nn.Linear(4, 2))
        inputs = (torch.ones(2, 3),)
    assert len(discover(model, inputs)) == 4

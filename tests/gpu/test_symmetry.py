"""Symmetries of models on a real device: found, certified, used, and no index stops the process."""

import copy

import pytest
import torch
from torch import Tensor, nn

import symoptim
from symoptim import UnitNormSGD, param_groups
from symoptim.errors import TraceError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE = torch.device("cuda", 0)
TOKENS, LENGTH, WIDTH = 11, 6, 8


class Language(nn.Module):
    """Reads tokens at no more than six places: longer inputs have indices that are out of range."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())
        self.head = nn.Linear(12, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden: Tensor = self.words(tokens) + self.places(places)
        return self.head(self.layers(hidden))


def a_model() -> tuple[Language, Tensor]:
    torch.manual_seed(0)
    return Language(), torch.randint(TOKENS, (3, LENGTH))


def test_the_group_is_that_of_the_cpu_and_holds() -> None:
    model, tokens = a_model()
    expected = symoptim.discover(model, (tokens,))
    model, tokens = model.to(DEVICE), tokens.to(DEVICE)
    spec = symoptim.discover(model, (tokens,))
    assert spec.to_json() == expected.to_json()
    assert len(spec) == WIDTH + 12 + 12
    certificate = spec.certify(model, (tokens,))
    assert certificate.holds, certificate
    before = model(tokens)
    spec.rescale_(model, spec.random(seed=0))
    torch.testing.assert_close(model(tokens), before, rtol=1e-3, atol=1e-3)
    symoptim.canonicalize_(model, spec)
    torch.testing.assert_close(model(tokens), before, rtol=1e-3, atol=1e-3)


def test_unit_norm_rows_leave_the_function_of_a_model_on_a_device() -> None:
    model, tokens = a_model()
    model, tokens = model.to(DEVICE), tokens.to(DEVICE)
    before = model(tokens)
    optimizer = UnitNormSGD(param_groups(model, example_inputs=(tokens,)), lr=0.1)
    torch.testing.assert_close(model(tokens), before, rtol=1e-3, atol=1e-3)
    rows = model.get_parameter("layers.0.weight")
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(12, device=DEVICE))
    model(tokens).square().mean().backward()
    optimizer.step()
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(12, device=DEVICE))


def test_an_index_out_of_range_is_an_error_that_can_be_caught() -> None:
    model, tokens = a_model()
    model, tokens = model.to(DEVICE), tokens.to(DEVICE)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(TraceError, match="an index is out of range, which is 0 to 10"):
        symoptim.discover(model, (tokens + TOKENS,))
    torch.cuda.synchronize()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())

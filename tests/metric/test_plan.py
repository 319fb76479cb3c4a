"""The order of reading: matrices before biases, what comes in before what goes out, then sums."""

import pytest
import torch
from torch import Tensor, nn

from symoptim import FullMetricSGD, Geometric, PathNorm, Pooled, discover
from symoptim.errors import UnmeasuredWarning
from symoptim.metric.full_metric import FullMetric
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.spec import Moved, SymmetrySpec
from symoptim.symmetry.tensors import model_tensors
from tests.metric.test_full_metric import assert_scales_move_with_weights
from tests.support.hugging_face import CASES
from tests.symmetry.test_hugging_face import found

UNMEASURED = {"xlnet"}
"""Scales of queries there are products of one per head and one per dimension of a head."""


def read_by(model: nn.Module, *inputs: Tensor) -> list[set[str]]:
    """Names of the tensors that each level reads."""
    metric = FullMetric.of(discover(model, inputs), model_tensors(model), Pooled())
    return [{reading.tensor for reading in level.readings} for level in metric.plans[1].levels]


def test_layers_are_read_one_after_another_with_their_biases() -> None:
    layers = [nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)]
    assert read_by(nn.Sequential(*layers), torch.rand(6, 3)) == [
        {"0.weight", "0.bias"},
        {"2.weight", "2.bias"},
    ]


def test_gain_and_shift_of_a_normalization_measure_what_nothing_else_comes_in_to() -> None:
    layers = [nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)]
    levels = read_by(nn.Sequential(*layers), torch.rand(6, 3))
    assert levels == [{"0.weight", "1.weight", "1.bias"}]


class Attention(nn.Module):
    """Keys and queries of a head of its own: biases could be read at once, and are not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return (self.query(x) * self.key(x)).sum(dim=-1, keepdim=True)


def test_a_bias_waits_for_its_matrix() -> None:
    assert read_by(Attention(), torch.rand(6, 3)) == [
        {"first.weight", "first.bias"},
        {"query.weight", "query.bias"},
    ]


def circular() -> tuple[SymmetrySpec, dict[str, Tensor]]:
    """A group in which no tensor moves with one generator alone: one with the sum, one the difference."""
    whole = [[torch.tensor([[number]])] for number in range(2)]
    spec = SymmetrySpec(
        tensors={name: Moved((4, 4), tuple(term)) for name, term in zip("ab", whole, strict=True)},
        aliases={},
        names=("first", "second"),
        scales=2,
        exponents=Sparse(
            torch.tensor([0, 0, 1, 1]),
            torch.tensor([0, 1, 0, 1]),
            torch.tensor([1.0, 1.0, 1.0, -1.0]).double(),
        ),
        unknown={},
        pinned={},
        approximate={},
    )
    return spec, {name: nn.Parameter(torch.rand(4, 4, dtype=torch.float64)) for name in "ab"}


@pytest.mark.parametrize("gauge", [Pooled(), PathNorm(), Geometric()])
def test_where_nothing_measures_a_generator_alone_sums_are_measured(gauge: Pooled) -> None:
    spec, weights = circular()
    metric = FullMetric.of(spec, weights, gauge)
    assert not len(metric.unmeasured())
    element = torch.tensor([0.3, -0.7]).double()
    moved = {name: w.detach() * spec.log_scales(element)[name].exp() for name, w in weights.items()}
    there, here = metric.log_scales(moved), metric.log_scales(weights)
    torch.testing.assert_close(there - here, torch.tensor([-0.4, 1.0]).double())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of other people's making
@pytest.mark.parametrize("name", [name for name in CASES if name not in UNMEASURED])
def test_scales_move_with_the_weights_of_hugging_face(name: str) -> None:
    model, _, spec = found(name)
    for gauge in (Pooled(), Geometric()):
        assert_scales_move_with_weights(model.double(), spec, gauge)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNMEASURED)
def test_what_cannot_be_measured_is_said(name: str) -> None:
    model, _, spec = found(name)
    with pytest.warns(UnmeasuredWarning, match="have no weight to be measured by"):
        FullMetricSGD(model, spec, lr=0.1)

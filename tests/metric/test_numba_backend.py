"""The full metric by kernels on the CPU: the factors of the pure functions, whatever the gauge."""

import pytest
import torch
from torch import Tensor, nn

from symoptim import FullMetricSGD, Geometric, OwnRow, PathNorm, Pooled, discover
from symoptim.metric.full_metric import FullMetric
from symoptim.metric.gauge import Gauge

pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")


class Stream(nn.Module):
    """Convolutions that write to a stream, a pooled layer, and a map that reads its pixels together."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.last, self.out = nn.Linear(6 * 4, 8), nn.Linear(8, 3, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        stream = self.first(images).relu()
        stream = stream + self.second(stream).relu()
        return self.out(self.last(nn.functional.max_pool2d(stream, 2).flatten(1)).relu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gauge", [Pooled(), OwnRow(), PathNorm(), Geometric()])
@torch.no_grad()
def test_factors_are_those_of_the_pure_functions(gauge: Gauge, dtype: torch.dtype) -> None:
    from symoptim.metric.numba_backend import CpuMetric

    torch.manual_seed(0)
    model = Stream().to(dtype)
    model.last.weight[2] = 0  # a unit that has come to nothing is measured by what goes out
    spec = discover(model, (torch.rand(2, 2, 4, 4, dtype=dtype),))
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    metric = FullMetric.of(spec, dict(model.named_parameters()), gauge).on(torch.device("cpu"), dtype)
    kernels = CpuMetric(metric, weights, 2.0, are_copies=False)
    for _ in range(2):  # what an earlier call has left behind does not count
        for weight in weights.values():
            weight.mul_(1 + torch.rand_like(weight))
        kernels.refresh(lambda: weights)
        expected = metric.factors(weights, 2.0)
        assert kernels.factors
        for name, (rows, columns, twice) in kernels.factors.items():
            found = torch.outer(rows, columns) ** (2 if twice else 1)
            whole = torch.ones_like(weights[name])
            for factor in expected[name]:
                whole = whole * factor
            assert torch.allclose(found.reshape(whole.shape), whole, rtol=100 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("width", [4_000, 20_000])
def test_two_threads_find_the_same_bits_as_one(width: int) -> None:
    found: list[list[torch.Tensor]] = []
    threads = torch.get_num_threads()
    for count in (1, 2):
        torch.manual_seed(0)
        hidden = 4_000_000 // width + 1
        model = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 3))
        spec = discover(model, (torch.rand(2, width),))
        for weight in model.parameters():
            weight.grad = weight.detach().sin()
        try:
            torch.set_num_threads(count)
            optimizer = FullMetricSGD(model, spec, lr=0.1, fused=True)
            for _ in range(2):
                optimizer.step()
        finally:
            torch.set_num_threads(threads)
        found.append([weight.detach() for weight in model.parameters()])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))

"""Kernels for CUDA, interpreted on the CPU with the tables of the launcher, step as pure functions do."""

import copy
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim import discover
from symoptim.geometry.tensors import update_dtype
from symoptim.kernels import descriptor
from symoptim.kernels.descriptor import hyperparameter_row
from symoptim.metric.full_metric import FullMetric
from symoptim.metric.gauge import Gauge
from symoptim.optim.fused_support import KINDS
from symoptim.symmetry.tensors import model_tensors
from symoptim.updates.step import StepOptions, step
from tests.support.kernel_steps import tolerance
from tests.support.metric_gauges import in_every_gauge

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton: pip install triton"),
    # The interpreter computes entries that are masked, too.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
interpreted = pytest.mark.skipif(not INTERPRETED, reason="run by test_interpreted_kernels_are_right")


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="runs the others")
def test_interpreted_kernels_are_right() -> None:
    """In a process of its own: when Triton is imported it is decided whether kernels are interpreted."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
    run = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout


@pytest.fixture(autouse=True)
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """What code for CUDA asks of torch, on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)


FILTERS = [
    (1, 7, 1), (1, 40, 33), (1, 9, 64), (1, 3, 1500), (1, 2, 4096), (1, 2, 5000), (1, 1, 12_288),
    (1, 1, 66_000), (3, 130, 1), (40, 20, 1), (5, 3, 4), (4, 2, 128),
]  # fmt: skip
"""Outer, filters and inner: every way for rows to fit programs, a very long row, and columns."""
ENTRIES = [(1, 1, 1), (1, 1, 1001), (1, 1, 4096)]
FACTORED = [(1, 40, 33), (1, 2, 4096), (1, 2, 5000)]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "nesterov, ascending": {"momentum": 0.9, "nesterov": True, "maximize": True},
}
DEFAULTS = {"lr": 0.01, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "maximize": False}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


class Stepped:
    """Tensors of one update between NaNs, and the table that kernels read."""

    def __init__(self, kind: int, shapes: list[tuple[int, int, int]], dtype: torch.dtype) -> None:
        self.dtype, self.kind = dtype, kind
        self.rooms: list[Tensor] = []
        self.table = torch.zeros(len(shapes), descriptor.WIDTH, dtype=torch.int64)
        self.table[:, descriptor.OUTER : descriptor.INNER + 1] = torch.tensor(shapes)
        self.table[:, descriptor.KIND] = kind
        self.weights: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.buffers: list[Tensor] = []
        self.parameters: list[Tensor] = []
        wide = update_dtype(dtype)
        for row, shape in zip(self.table, shapes, strict=True):
            drawn = torch.randn(shape, dtype=torch.float64)
            unit = drawn / drawn.norm(dim=(0, 2), keepdim=True)
            self.weights.append(self.placed(unit.to(dtype), wide))
            self.parameters.append(self.weights[-1])
            if wide != dtype:
                self.parameters[-1] = self.placed(self.weights[-1], dtype)
            self.gradients.append(self.placed(torch.randn(shape, dtype=torch.float64) / drawn.norm(), dtype))
            self.buffers.append(self.placed(torch.zeros(shape), wide))
            row[descriptor.WEIGHTS] = self.weights[-1].data_ptr()
            row[descriptor.PARAMETER] = self.parameters[-1].data_ptr()

    def placed(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        self.rooms.append(torch.full((values.numel() + 64,), torch.nan, dtype=dtype))
        return self.rooms[-1][32:-32].view(values.shape).copy_(values)

    def step(self, options: dict[str, Any], scaling: tuple[Tensor, Tensor] | None = None) -> None:
        from symoptim.kernels.triton.launcher import CudaLauncher, Inputs

        if options["momentum"]:
            self.table[:, descriptor.BUFFER] = torch.tensor([buffer.data_ptr() for buffer in self.buffers])
        launcher = CudaLauncher(self.table, torch.device("cpu"), self.dtype)
        launcher.set_gradient_pointers([gradient.data_ptr() for gradient in self.gradients])
        numbers = torch.tensor([hyperparameter_row(options)], dtype=torch.float64)
        for sequence in launcher.launches(Inputs(launcher.table.get(), numbers, scaling)):
            for launch in sequence:
                launch()
        assert all(bool(torch.cat([room[:32], room[-32:]]).isnan().all()) for room in self.rooms)

    def assert_stepped(self, options: dict[str, Any], factors: list[Tensor] | None = None) -> None:
        """Two steps are those of the pure update in float64."""
        options = DEFAULTS | options
        update = {number: update for update, number in KINDS.items()}[self.kind]
        over = () if self.kind == descriptor.PLAIN else (0, 2)
        expected = [weights.double() for weights in self.weights]
        buffers: list[Tensor | None] = [None] * len(expected)
        for _ in range(2):
            for n, gradient in enumerate(self.gradients):
                g = gradient.double() if factors is None else gradient.double() * factors[n]
                numbers = StepOptions(**options)
                expected[n], buffers[n] = step(update, expected[n], g, numbers, buffer=buffers[n], over=over)
            self.step(options)
        allowed = tolerance(self.dtype)
        for found, buffer in zip(self.buffers, buffers, strict=True):
            right = torch.zeros_like(found) if buffer is None else buffer
            torch.testing.assert_close(found.double(), right.double(), rtol=allowed, atol=allowed)
        for weights, parameter, right in zip(self.weights, self.parameters, expected, strict=True):
            torch.testing.assert_close(weights.double(), right, rtol=allowed, atol=allowed)
            # The interpreter does not round to bfloat16, it truncates.
            torch.testing.assert_close(parameter, weights.to(self.dtype), rtol=2**-7, atol=0)


@interpreted
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["scaled", "unit norm", "plain"])
def test_steps_equal_the_pure_ones_and_touch_nothing_else(
    kind: str, options: str, dtype: torch.dtype
) -> None:
    number = {"scaled": descriptor.SCALED, "unit norm": descriptor.UNIT_NORM, "plain": descriptor.PLAIN}[kind]
    stepped = Stepped(number, ENTRIES if kind == "plain" else FILTERS, dtype)
    stepped.assert_stepped({**OPTIONS[options], "weight_decay": 0.0 if kind == "unit norm" else 0.1})


@interpreted
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_gradients_are_multiplied_by_the_factors_of_their_rows_and_columns(options: str, twice: bool) -> None:
    stepped, factors = Stepped(descriptor.PLAIN, FACTORED, torch.float64), list[Tensor]()
    for row, (_, count, inner) in zip(stepped.table, FACTORED, strict=True):
        by_row, by_column = (stepped.placed(torch.rand(n) + 0.5, torch.float64) for n in (count, inner))
        row[descriptor.ROWS], row[descriptor.COLUMNS] = by_row.data_ptr(), by_column.data_ptr()
        row[descriptor.SQUARED] = twice
        factors.append((by_row[:, None] * by_column) ** (2 if twice else 1))
    stepped.assert_stepped(OPTIONS[options], factors)


@interpreted
@pytest.mark.parametrize("found_inf", [False, True])
@pytest.mark.parametrize("kind", [descriptor.UNIT_NORM, descriptor.SCALED])
def test_the_scale_of_a_loss_is_divided_out_and_overflow_is_skipped(kind: int, found_inf: bool) -> None:
    options = {**DEFAULTS, "momentum": 0.9}
    shapes = [(1, 5, 33), (1, 1, 5000), (5, 3, 4)]
    torch.manual_seed(0)
    scaled = Stepped(kind, shapes, torch.float32)
    torch.manual_seed(0)
    plain = Stepped(kind, shapes, torch.float32)
    for gradient in scaled.gradients:
        gradient.mul_(1024)
    scaled.step(options, (torch.tensor(1024.0), torch.tensor(float(found_inf))))
    if not found_inf:
        plain.step(options)
    assert all(map(torch.equal, scaled.weights, plain.weights))
    assert all(map(torch.equal, scaled.buffers, plain.buffers))


@interpreted
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@in_every_gauge
def test_scales_are_the_reference(gauge: Gauge, dtype: torch.dtype) -> None:
    from symoptim.metric.triton_backend import CudaMetric

    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 5))
    spec = discover(model, (torch.rand(2, 3, 6, 6),))
    model = spec.rescale_(model, spec.random(seed=4, spread=1.0)).to(dtype)
    tensors = {name: tensor.detach() for name, tensor in model_tensors(model).items()}
    metric = FullMetric.of(spec, tensors, gauge)
    expected = metric.factors(model_tensors(copy.deepcopy(model).double()), 2.0)
    # Of another type: this one is left to the reference.
    tensors["8.weight"] = tensors["8.weight"].to(torch.float32 if dtype == torch.float64 else torch.float64)
    found = CudaMetric(metric, tensors, 2.0, torch.device("cpu"), dtype)
    found.enqueue(lambda: tensors)
    for name, (rows, columns, twice) in found.factors.items():
        one, *others = expected[name]
        for other in others:
            one = one * other
        scale = rows.double()[:, None] * columns.double()
        scale = torch.as_strided(scale, tensors[name].shape, tensors[name].stride())
        scale = scale.square() if twice else scale
        torch.testing.assert_close(scale, one.detach().expand_as(scale), rtol=1e-6, atol=0)

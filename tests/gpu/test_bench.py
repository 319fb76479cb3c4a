"""The benchmark on a device: three clocks, no waits for fused SGD, memory from the allocator."""

import pytest
import torch

from symoptim.bench import clock, roofline
from symoptim.bench.cases import Case, Weight
from symoptim.bench.clock import clock_for
from symoptim.bench.measure import Budget, Measurement
from symoptim.bench.optimizers import CONTESTANTS
from symoptim.bench.tensors import CaseTensors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NAMES = ("sgd-fused", "sgd-foreach", "adamw-fused", "sm-reference", "un-reference")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_case_is_measured(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, momentum: float) -> None:
    monkeypatch.setitem(clock.FLUSHED, "cuda", 2**20)
    monkeypatch.setitem(roofline.COPIED, "cuda", 2**20)
    device = torch.device("cuda")
    case = Case(name="a", title="a", weights=(Weight((64, 32)),) * 3 + (Weight((64,), "plain"),))
    tensors = CaseTensors(case, device, dtype, symmetries=False)
    mine = [CONTESTANTS[name] for name in NAMES]
    budget = Budget(turns=3, seconds=60)
    measurement = Measurement(
        tensors=tensors, contestants=mine, momentum=momentum, clock=clock_for(device), budget=budget
    )
    lines = {line["contestant"]: line for line in measurement.run()}
    for name in NAMES:
        line = lines[name]
        assert line["clock"] == "CUDA events"
        assert all(0 < line[key]["p50"] < 1 for key in ("seconds", "host", "device"))
        assert line["synchronizations"] == 0
    assert lines["sgd-fused"]["state_bytes"] == (tensors.bytes if momentum else 0)
    assert lines["un-reference"]["temporary_bytes"] > 0
    assert lines["un-reference"]["allocations"] > 0

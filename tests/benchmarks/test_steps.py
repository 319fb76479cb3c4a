"""The scripts about steps, in their smallest form."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from symoptim.bench import cases, clock, roofline
from symoptim.bench.cases import Case, Example, weights_of
from symoptim.bench.optimizers import CONTESTANTS
from symoptim.bench.records import read_steps

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder can be imported from, buffers are small, and optimizers that are registered do not stay."""
    known = dict(CONTESTANTS)
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setitem(clock.FLUSHED, "cpu", 2**12)
    monkeypatch.setitem(roofline.COPIED, "cpu", 2**16)
    yield
    CONTESTANTS.clear()
    CONTESTANTS.update(known)


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
    module.main()


def test_a_sweep_is_measured_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = import_module("step_sweep")
    monkeypatch.setitem(sweep.LIMITS, "cpu", 2**12)
    path = tmp_path / "sweep.jsonl"
    run(
        sweep, monkeypatch, "--device", "cpu", "--turns", "3", "--optimizers", "sgd-fused", "--out", str(path)
    )
    assert [step.line["case"] for step in read_steps([path])] == ["1x16", "1x64", "16x16"]
    assert f"written: {path.with_suffix('.png')}" in capsys.readouterr().out
    assert path.with_suffix(".png").stat().st_size > 5000


def _make_network() -> Example:
    return Example(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), (torch.rand(2, 8),))


def test_the_share_of_a_step_is_of_a_training_step(monkeypatch: pytest.MonkeyPatch) -> None:
    share = import_module("training_share")
    case = Case(name="mlp", title="an MLP", weights=weights_of(_make_network().model), network=_make_network)
    monkeypatch.setitem(cases.CASES, "mlp", lambda: case)
    monkeypatch.setattr(share, "batch", lambda *_: (torch.rand(6, 8), torch.randint(4, (6,))))
    tensors = share.tensors_of("mlp", torch.device("cpu"))
    before = [pair.parameter.detach().clone() for pair in tensors.pairs]
    monkeypatch.setattr(share, "RATE", 0.1)
    found = share.measure("mlp", "sm-reference", torch.device("cpu"))
    assert 0 < found["share"] < 1
    assert found["share"] == pytest.approx(found["step"] / (found["step"] + found["passes"]))
    for pair, weight in zip(tensors.pairs, before, strict=True):
        assert not torch.allclose(pair.parameter, weight), "it was not trained"
    assert share.line_of(found).startswith("mlp")
    assert share.line_of({"network": "mlp", "optimizer": "X", "missing": "not here"}).endswith("not here")

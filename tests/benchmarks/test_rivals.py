"""Optimizers of other packages and compiled steps match their formulas; pages are written from records."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from symoptim.bench.cases import Case, Example, case_of
from symoptim.bench.correctness import error_of
from symoptim.bench.optimizers import CONTESTANTS, contestants_named
from symoptim.bench.tensors import CaseTensors

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
CPU = torch.device("cpu")
NAMES = ("geoopt", "sgdp", "sgdp-collection", "oblique")


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script; what it registers does not stay."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = import_module("rivals")
    for one in module.RIVALS:
        monkeypatch.setitem(CONTESTANTS, one.name, one)
    return module


def small() -> Case:
    layers = (nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
    return case_of("small", Example(nn.Sequential(*layers), (torch.rand(2, 3, 4, 4),)))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", NAMES)
def test_those_that_are_installed_match_their_formulas(
    rivals: ModuleType, name: str, momentum: float
) -> None:
    contestant = CONTESTANTS[name]
    if reason := contestant.missing(CPU, torch.float32):
        pytest.skip(reason)
    tensors = CaseTensors(small(), CPU, torch.float32, symmetries=False)
    assert error_of(contestant, tensors, momentum) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["sm-compiled", "un-compiled"])
def test_the_compiled_step_matches_its_formula(rivals: ModuleType, name: str, momentum: float) -> None:
    tensors = CaseTensors(small(), CPU, torch.float32, symmetries=False)
    assert error_of(CONTESTANTS[name], tensors, momentum) < 1e-5


def test_compiled_steps_are_measured_where_asked_for(rivals: ModuleType) -> None:
    names = [[one.name for one in contestants_named(None, compiled=asked)] for asked in (False, True)]
    assert set(names[1]) - set(names[0]) == {"sm-compiled", "un-compiled"}
    assert "float32 only" in CONTESTANTS["sm-compiled"].missing(CPU, torch.bfloat16)


def test_it_is_the_command_with_more_optimizers(tmp_path: Path) -> None:
    options = ["--device", "cpu", "--cases", "tiny", "--optimizers", "sgd-foreach,oblique", "--momentum", "0"]
    out = tmp_path / "mine.jsonl"
    command = [sys.executable, str(BENCHMARKS / "rivals.py"), *options, "--turns", "1", "--out", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "SGD, foreach" in run.stdout
    assert "ObliqueSGD" in run.stdout
    assert "rivals.py --device cpu" in out.read_text()


def test_tables_and_pictures_are_written_from_records(tmp_path: Path) -> None:
    records = BENCHMARKS / "results" / "resnet50_cuda_202611.jsonl"
    command = [sys.executable, str(BENCHMARKS / "page.py"), str(records), "--out", str(tmp_path / "page")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for ending in (".md", ".png", ".svg"):
        assert f"page{ending}" in printed
        assert (tmp_path / f"page{ending}").stat().st_size > 1000
    chosen = [*command[:-1], str(tmp_path / "part"), "--optimizers", "un-fused", "--pictures"]
    subprocess.run(chosen, check=True)
    assert (tmp_path / "part.png").exists()
    assert not (tmp_path / "part.md").exists()

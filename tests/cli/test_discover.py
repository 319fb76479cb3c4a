"""The command ``symoptim discover``: a table, a certificate, files, and errors that say what to do."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from symoptim.cli.app import app
from symoptim.errors import OptionError
from symoptim.symmetry.spec import SymmetrySpec

MODELS = """
import torch
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))

def with_inputs():
    return mlp(), (torch.rand(5, 3),)

class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = mlp()

    def forward(self, *, pixels):
        return self.mlp(pixels)

def by_name():
    return Named(), {"pixels": torch.rand(5, 3)}

def tokens():
    return nn.Sequential(nn.Embedding(7, 4), nn.LayerNorm(4), nn.Linear(4, 2))

def nothing():
    return "a model"

number = 3
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "my_models.py"
    path.write_text(MODELS)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["discover", *map(str, arguments)], env={"COLUMNS": "200"})


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, OptionError)
    return str(result.exception)


def test_a_model_of_a_file_is_described_and_certified(models: Path) -> None:
    result = run(f"{models}:mlp", "--input", "6,3", "--certify")
    assert result.exit_code == 0, result.output
    for words in (
        "8 rescalings",
        "0.weight rows x a",
        "1.running_var entries x a^2",
        "3.weight columns / a",
        "batch_norm (eps 1e-05)",
        "certificate holds",
    ):
        assert words in result.output


def test_the_mode_can_be_chosen(models: Path) -> None:
    assert " 12 rescalings" in run(f"{models}:with_inputs", "--mode", "evaluation").output
    assert " 8 rescalings" in run(f"{models}:with_inputs", "--mode", "training").output


def test_inputs_may_be_tokens_or_come_with_the_model(models: Path) -> None:
    assert "rescalings" in run(f"{models}:tokens", "--input", "2,5:7").output
    assert "8 rescalings" in run(f"{models}:with_inputs").output
    assert "certificate holds" in run(f"{models}:by_name", "--certify").output


def test_a_module_is_found_by_name() -> None:
    result = run("symoptim.models:arch1", "--input", "2,784", "--mappings")
    assert result.exit_code == 0, result.output
    assert "64 rescalings" in result.output
    assert "smooth_layer: 'hidden.0.filters'" in result.output


def test_files_are_written_where_it_says(models: Path, tmp_path: Path) -> None:
    json, picture = tmp_path / "new" / "group.json", tmp_path / "group.svg"
    result = run(f"{models}:with_inputs", "--json", json, "--out", picture)
    assert f"written: {json}" in result.output
    assert f"written: {picture}" in result.output
    assert len(SymmetrySpec.from_json(json.read_text())) == 8
    assert picture.read_text().startswith("<svg")


def test_what_cannot_be_used_is_said(models: Path) -> None:
    assert "there is no input for" in refused(f"{models}:mlp")
    assert "does not run on inputs of shape (2, 5): IndexError: index out of range" in refused(
        f"{models}:tokens", "--input", "2,5:99", "--certify"
    )
    assert "does not run on inputs of shape (2, 7): RuntimeError: mat1" in refused(
        f"{models}:mlp", "--input", "2,7"
    )
    assert "'2x3' is no shape" in refused(f"{models}:mlp", "--input", "2x3")
    assert "should be MODULE:FACTORY" in refused("models")
    assert "there is no 'resnet' in" in refused(f"{models}:resnet", "--input", "1")
    assert "there is no file" in refused("missing.py:mlp", "--input", "1")
    assert "there is no module missing_package" in refused("missing_package:mlp", "--input", "1")
    assert "is a int; it should be a function" in refused(f"{models}:number", "--input", "1")
    assert "returns a str; it should make an nn.Module" in refused(f"{models}:nothing", "--input", "1")


def test_a_certificate_that_does_not_hold_is_a_failure(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symoptim.symmetry.certify.Certificate.holds", property(lambda self: False))
    result = run(f"{models}:with_inputs", "--certify")
    assert result.exit_code == 1
    assert "DOES NOT HOLD" in result.output

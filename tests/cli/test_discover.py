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
instance = mlp()

def wide(width, *, depth, bias=True):
    return mlp()

def broken():
    return {}["weight"]

def by_user_dict():
    from collections import UserDict
    return Named(), UserDict(pixels=torch.rand(5, 3))
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
    for factory in ("by_name", "by_user_dict"):
        assert "certificate holds" in run(f"{models}:{factory}", "--certify").output


def test_a_module_is_found_by_name() -> None:
    result = run("symoptim.models:arch1", "--input", "2,784", "--mappings")
    assert result.exit_code == 0, result.output
    assert "64 rescalings" in result.output
    assert (
        "mappings: []  # none that AWQ and SmoothQuant apply rightly" in result.output
    )  # two rows against each column: no tool does that


def test_mappings_are_printed_as_a_recipe(models: Path) -> None:
    assert "smooth_layer: 'mlp.1'" in run(f"{models}:by_name", "--mappings").output


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
    assert "is an int; it should be a model, or a function that makes one" in refused(
        f"{models}:number", "--input", "1"
    )
    assert "returns a str; it should make an nn.Module" in refused(f"{models}:nothing", "--input", "1")


def test_a_certificate_that_does_not_hold_is_a_failure(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symoptim.symmetry.certify.Certificate.holds", property(lambda self: False))
    result = run(f"{models}:with_inputs", "--certify")
    assert result.exit_code == 1
    assert "DOES NOT HOLD" in result.output


def test_a_model_itself_may_be_named(models: Path) -> None:
    result = run(f"{models}:instance", "--input", "6,3", "--certify")
    assert result.exit_code == 0, result.output
    assert "8 rescalings" in result.output
    assert "certificate holds" in result.output


def test_factories_that_fail_are_named_with_the_reason(models: Path) -> None:
    said = refused(f"{models}:wide", "--input", "6,3")
    assert "needs arguments (width, depth), and is called without any" in said
    assert "def make(): return wide(...)" in said
    assert "needs arguments (in_features, out_features)" in refused("torch.nn:Linear", "--input", "2,3")
    assert f"fails: KeyError: 'weight' (line 35 of {models})" in refused(f"{models}:broken", "--input", "6,3")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = (", "SyntaxError"),
        ("import missing_package", "ModuleNotFoundError: No module named 'missing_package' (line 1 of"),
        ("1 / 0", "ZeroDivisionError: division by zero (line 1 of"),
        ("import sys; sys.exit(2)", "SystemExit: 2"),
    ],
)
def test_modules_that_cannot_be_imported_say_why(tmp_path: Path, code: str, words: str) -> None:
    path = tmp_path / "module_that_fails.py"
    path.write_text(code)
    assert f"{path} cannot be imported: {words}" in refused(f"{path}:make", "--input", "2")
    assert ".models cannot be imported: TypeError" in refused(".models:make", "--input", "2")


def test_inputs_without_end_are_refused(models: Path) -> None:
    for size in ("99999999999,99999999", "9" * 23, "2:" + "9" * 23):
        assert f"input '{size}' cannot be made" in refused(f"{models}:mlp", "--input", size)


@pytest.mark.parametrize("option", ["--out", "--json"])
def test_files_that_cannot_be_written_are_refused_before_the_work(
    tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symoptim.cli.models.load_model", None)
    folder, file = tmp_path / "folder.svg", tmp_path / "file"
    folder.mkdir()
    file.touch()
    for path in (folder, file / "group.svg", Path("/dev/null/group.svg")):
        assert f"{option} {path} cannot be written (" in refused("any:model", option, path)
    assert sorted(tmp_path.iterdir()) == [file, folder]
    assert "name it so, --out network.svg" in refused("any:model", "--out", "")


def test_a_file_that_is_there_stays_when_the_model_fails(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text("mine")
    refused(f"{models}:broken", "--json", path, "--out", tmp_path / "new.svg")
    assert path.read_text() == "mine"
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_file()) == ["group.json", "my_models.py"]

"""The command ``symoptim bench``: measures, goes on, reports, and says what is wrong with its options."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from symoptim.bench import cases, clock, roofline
from symoptim.bench.cases import Case, Weight
from symoptim.bench.optimizers import FOR_MODELS, Contestant
from symoptim.cli.app import app
from symoptim.errors import OptionError


def _make_few() -> Case:
    return Case(name="few", title="a few", weights=(Weight((4, 3)), Weight((4,), "plain")))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(clock.FLUSHED, "cpu", 2**12)
    monkeypatch.setitem(roofline.COPIED, "cpu", 2**16)
    monkeypatch.setitem(cases.CASES, "few", _make_few)


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments], catch_exceptions=False)


def measure(path: Path, *more: str) -> Result:
    asked = ["--device", "cpu", "--cases", "few", "--optimizers", "un-reference,un-fused,sgd-foreach"]
    return bench(*asked, "--turns", "3", "--out", str(path), *more)


def test_it_measures_prints_writes_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "results" / "mine.jsonl"
    result = measure(path)
    assert result.exit_code == 0, result.output
    assert "UN, reference" in result.output
    assert path.with_suffix(".md").stat().st_size > 200
    assert "mine.md" in result.output
    session, *steps = (json.loads(line) for line in path.read_text().splitlines())
    assert session["command"]
    assert {step["contestant"] for step in steps} >= {"sgd-fused", "un-reference", "sgd-foreach"}

    before = path.read_text()
    assert measure(path).exit_code == 0
    assert path.read_text() == before

    shown = bench("--report", str(path), "--optimizers", "un-reference", "--out", str(tmp_path / "part"))
    assert shown.exit_code == 0
    part = (tmp_path / "part.md").read_text()
    assert "| SGD, fused |" in part
    assert "foreach" not in part


def test_who_is_missing_is_named_though_nothing_is_left_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Contestant, "missing", _without_foreach)
    path = tmp_path / "mine.jsonl"
    asked = ["--device", "cpu", "--cases", "few", "--turns", "3", "--out", str(path), "--optimizers"]
    assert bench(*asked, "un-reference").exit_code == 0
    for _ in range(2):
        result = bench(*asked, "un-reference,sgd-foreach")
        assert "SGD, foreach: not here" in result.stdout
    assert "has all that can be measured here" in result.stderr
    named = [json.loads(line).get("contestant") for line in path.read_text().splitlines()]
    assert named.count("sgd-foreach") == 2  # once for each momentum


def _without_foreach(contestant: Contestant, *_: object) -> str:
    return "not here" if contestant.name == "sgd-foreach" else ""


def test_who_has_no_place_is_told_why(tmp_path: Path) -> None:
    asked = ["--device", "cpu", "--cases", "few", "--turns", "3", "--momentum", "0", "--out"]
    result = bench(*asked, str(tmp_path / "mine.jsonl"), "--optimizers", "full-reference,adamw-fused")
    assert result.exit_code == 0
    assert "full metric, reference: needs a network, which none of these is: a few" in result.stderr
    assert "AdamW, fused: has momentum of its own" in result.stderr


def test_where_no_bar_can_be_seen_there_is_a_line_for_every_case(tmp_path: Path) -> None:
    lines = measure(tmp_path / "mine.jsonl").stderr.splitlines()
    assert lines[:2] == ["a few, momentum 0", "a few, momentum 0.9"]


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "new" / "mine.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr("symoptim.bench.run.carry_out", press)
        result = measure(path)
    assert result.exit_code == 130
    assert "stopped" in result.stderr
    assert path.exists()
    assert measure(path).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cases", "resnet"], "unknown case 'resnet'"),
        (["--optimizers", "adam"], "unknown optimizer 'adam'"),
        (["--momentum", "1.5"], "--momentum must be"),
        (["--momentum", "much"], "--momentum must be"),
        (["--dtype", "int8"], "--dtype must be of float32, bfloat16"),
        (["--cases", ","], "--cases names nothing; got ','"),
        (["--optimizers", ""], "--optimizers names nothing"),
        (["--dtype", " "], "--dtype names nothing"),
        (["--report"], "go together"),
        (["file.jsonl"], "go together"),
        (["--input", "2,3"], "--input is for a model"),
        (["model.py:make", "--cases", "few"], "leave one of them out"),
        (["model.py:make"], "there is no file model.py"),
        (["--compile"], "by python benchmarks/rivals.py --compile"),
        (["--optimizers", "geoopt"], "those of other packages are measured in a clone"),
    ],
)
def test_bad_options_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        bench(*arguments)


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    session = dict.fromkeys(("session", "machine", "device", "threads", "torch", "code"), "1")
    line = {"session": "1", "case": "few", "momentum": 0.0, "dtype": "float32", "contestant": "sgdp"}
    lines = [{"kind": "session", **session}, {"kind": "step", **line}]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    with pytest.raises(OptionError, match="none of these"):
        bench("--report", str(path), "--cases", "matrix")


MODEL = """
from torch import nn

def make():
    return nn.Sequential(nn.Linear(3, 8, bias=False), nn.ReLU(), nn.Linear(8, 2))

def frozen():
    return make().requires_grad_(False)

def partly():
    model = make()
    model[0].requires_grad_(False)
    return model
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "my_model.py"
    path.write_text(MODEL)
    return str(path)


def measure_model(name: str, out: Path, *more: str) -> Result:
    return bench(name, "--input", "4,3", "--device", "cpu", "--turns", "3", "--out", str(out), *more)


def steps_of(path: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["kind"] == "step"]


def test_a_model_of_ones_own_is_measured_every_time(model: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    for number in (1, 2):
        result = measure_model(f"{model}:make", path)
        assert result.exit_code == 0, result.output
        steps = steps_of(path)
        assert len(steps) == number * (4 + 7)
    assert {step["contestant"] for step in steps} == {"sgd-fused", *FOR_MODELS}
    assert all("seconds" in step and step["floor"] > 0 for step in steps), steps
    assert all(step["elements"] == 24 + 18 and 0 < step["passes"] < 1 for step in steps)
    assert "Share of a training step" in result.output
    assert "full metric, AdamW" in result.output


def test_parameters_that_are_not_trained_are_not_stepped(model: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    assert measure_model(f"{model}:partly", path, "--momentum", "0.9").exit_code == 0
    assert all(step["elements"] == 18 and "seconds" in step for step in steps_of(path))
    with pytest.raises(OptionError, match="no parameters that require gradients"):
        measure_model(f"{model}:frozen", path)


def test_without_symmetries_the_others_are_measured(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no trace\nof it")

    monkeypatch.setattr("symoptim.bench.tensors.discover", fail)
    result = measure_model(f"{model}:make", tmp_path / "mine.jsonl", "--momentum", "0")
    assert "full metric, fused: its symmetries cannot be found: ValueError: no trace" in result.output
    timed = {step["contestant"] for step in steps_of(tmp_path / "mine.jsonl") if "seconds" in step}
    assert timed == {"sgd-fused", "sm-fused", "un-fused"}


def test_a_model_that_does_not_run_is_refused(model: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"does not run on inputs of shape \(4, 5\)"):
        bench(f"{model}:make", "--input", "4,5", "--out", str(tmp_path / "mine.jsonl"))
    assert not (tmp_path / "mine.jsonl").exists()

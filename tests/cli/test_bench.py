"""The command ``symoptim bench``: measures, goes on, reports, and says what is wrong with its options."""

import json
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner, Result

from symoptim.bench import cases, clock, floor
from symoptim.bench.cases import Case, Weight
from symoptim.cli.app import app
from symoptim.errors import OptionError


def _make_few() -> Case:
    return Case(name="few", title="a few", weights=(Weight((4, 3)), Weight((4,), "plain")))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(clock.FLUSHED, "cpu", 2**12)
    monkeypatch.setitem(floor.COPIED, "cpu", 2**16)
    monkeypatch.setitem(cast("dict[str, object]", cases.CASES), "few", _make_few)


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments], catch_exceptions=False)


def measure(path: Path, *more: str) -> Result:
    asked = ["--device", "cpu", "--cases", "few", "--optimizers", "un-reference,un-fused,sgdp"]
    return bench(*asked, "--turns", "3", "--out", str(path), *more)


def test_it_measures_prints_writes_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "results" / "mine.jsonl"
    result = measure(path)
    assert result.exit_code == 0, result.output
    assert "UN, reference" in result.output
    for ending in (".md", ".png", ".svg"):
        assert path.with_suffix(ending).stat().st_size > 200
        assert f"mine{ending}" in result.output
    session, *steps = (json.loads(line) for line in path.read_text().splitlines())
    assert session["command"]
    assert {step["contestant"] for step in steps} >= {"sgd-fused", "un-reference", "sgdp"}

    before = path.read_text()
    assert measure(path).exit_code == 0
    assert path.read_text() == before

    shown = bench("--report", str(path), "--optimizers", "un-reference", "--out", str(tmp_path / "part"))
    assert shown.exit_code == 0
    part = (tmp_path / "part.md").read_text()
    assert "| SGD, fused |" in part
    assert "SGDP" not in part


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("symoptim.bench.run.carry_out", press)
    result = measure(tmp_path / "mine.jsonl")
    assert result.exit_code == 130
    assert "stopped" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cases", "resnet"], "unknown case 'resnet'"),
        (["--optimizers", "adam"], "unknown optimizer 'adam'"),
        (["--momentum", "1.5"], "--momentum must be"),
        (["--momentum", "much"], "--momentum must be"),
        (["--dtype", "int8"], "--dtype must be of float32, bfloat16"),
        (["--report"], "go together"),
        (["file.jsonl"], "go together"),
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

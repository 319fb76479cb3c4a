"""The command ``symoptim bench``: measures, goes on, reports, and says what is wrong with its options."""

import json
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner, Result

from symoptim.bench import cases, clock, floor
from symoptim.bench.cases import Case, Weight
from symoptim.bench.contestants import Contestant
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


def test_who_is_missing_is_named_though_nothing_is_left_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Contestant, "missing", _without_oblique)
    path = tmp_path / "mine.jsonl"
    asked = ["--device", "cpu", "--cases", "few", "--turns", "3", "--out", str(path), "--optimizers"]
    assert bench(*asked, "un-reference").exit_code == 0
    for _ in range(2):
        result = bench(*asked, "un-reference,oblique")
        assert "ObliqueSGD (NVIDIA): not here" in result.stdout
    assert "has all that can be measured here" in result.stderr
    named = [json.loads(line).get("contestant") for line in path.read_text().splitlines()]
    assert named.count("oblique") == 2  # once for each momentum


def _without_oblique(contestant: Contestant, *_: object) -> str:
    return "not here" if contestant.name == "oblique" else ""


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

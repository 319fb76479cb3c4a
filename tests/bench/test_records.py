from pathlib import Path

import pytest

from symoptim.bench.records import Journal, read_steps
from symoptim.errors import RecordsError

SESSION = {"session": "1", "machine": "m", "device": "cpu", "threads": 1, "torch": "2", "code": "c"}
LINE = {"case": "a", "momentum": 0.0, "dtype": "float32", "contestant": "sgd-fused"}


def test_a_later_line_replaces_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    for seconds in (1.0, 2.0):
        Journal(path, SESSION).add([{**LINE, "seconds": {"p50": seconds}}])
    (step,) = read_steps([path])
    assert step.seconds == 2.0
    assert Journal(path, SESSION).has(LINE)
    assert not Journal(path, {**SESSION, "code": "d"}).has(LINE)
    assert not Journal(path, {**SESSION, "threads": 2}).has(LINE)


def test_what_is_measured_again_keeps_its_place(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    timed = {**LINE, "seconds": {"p50": 1.0}}
    Journal(path, SESSION).add([timed, {**timed, "case": "b"}])
    Journal(path, {**SESSION, "session": "2"}).add([timed])
    assert [step.line["case"] for step in read_steps([path])] == ["a", "b"]


def test_ratios_are_to_fused_sgd_of_the_same_session(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    other = {**LINE, "contestant": "un-fused", "seconds": {"p50": 6.0}}
    Journal(path, SESSION).add([{**LINE, "seconds": {"p50": 4.0}}, other])
    Journal(path, {**SESSION, "session": "2"}).add([{**LINE, "seconds": {"p50": 3.0}}])
    assert {step.line["contestant"]: step.ratio for step in read_steps([path])} == {
        "un-fused": 1.5,
        "sgd-fused": 1.0,
    }


def test_absence_is_looked_into_again(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    Journal(path, SESSION).add([{**LINE, "missing": "not installed"}])
    assert not Journal(path, SESSION).has(LINE)


def test_a_line_that_was_cut_off_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    Journal(path, SESSION).add([{**LINE, "seconds": {"p50": 1.0}}])
    with path.open("a") as file:
        file.write('{"kind": "st')
    Journal(path, SESSION).add([{**LINE, "case": "b", "seconds": {"p50": 3.0}}])
    assert [step.line["case"] for step in read_steps([path])] == ["a", "b"]


@pytest.mark.parametrize("text", ["", "[1]\n", "no JSON"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_text(text)
    with pytest.raises(RecordsError, match="has no records"):
        read_steps([path])


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="cannot be read"):
        read_steps([tmp_path / "none.jsonl"])
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordsError, match="cannot be written"):
        Journal(tmp_path / "file" / "bench.jsonl", SESSION)


def test_a_journal_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine, without an end of line")
    with pytest.raises(RecordsError, match="has no records"):
        Journal(path, SESSION)
    assert path.read_text() == "mine, without an end of line"

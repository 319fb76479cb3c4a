"""The benchmark of rates, in its smallest form: which updates see how a start is scaled."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
SMALLEST = ["--quick", "--steps", "5", "--tasks", "arch1", "arch2"]
UPDATES = ["sgd", "full", "invariant-adamw"]


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    plain = {name: value for name, value in os.environ.items() if name != "SYMOPTIM_DATA"}  # on digits
    return subprocess.run(command, check=True, capture_output=True, text=True, env=plain).stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sensitivity") / "results.jsonl"
    run("sensitivity.py", *SMALLEST, "--updates", *UPDATES, "--out", str(path))
    return path


def largest_gap(path: Path, update: str) -> float:
    """Of runs that differ in the start alone, and did not diverge."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    mine = [line for line in lines if line["update"] == update and not line["diverged"]]
    balanced, moved = (
        {(line["task"], line["rate"]): line["loss"] for line in mine if line["spread"] == spread}
        for spread in (1.0, 30.0)
    )
    common = balanced.keys() & moved.keys()
    assert len(common) >= 8
    return max(abs(balanced[key] - moved[key]) / balanced[key] for key in common)


@pytest.mark.parametrize("update", ["full", "invariant-adamw"])
def test_invariant_updates_do_not_see_the_start(results: Path, update: str) -> None:
    assert largest_gap(results, update) < 1e-10


def test_sgd_does(results: Path) -> None:
    assert largest_gap(results, "sgd") > 1e-2


def test_results_say_where_they_come_from_and_are_not_repeated(results: Path) -> None:
    before = results.read_text()
    assert json.loads(before.splitlines()[0]).keys() >= {"session", "commit", "packages", "command"}
    run("sensitivity.py", *SMALLEST, "--updates", "sgd", "--out", str(results))
    assert results.read_text() == before


def test_the_table_of_the_documentation_is_what_the_committed_results_say(tmp_path: Path) -> None:
    printed = run("sensitivity_figure.py", "--out", str(tmp_path / "picture.png"))
    page = (BENCHMARKS.parent / "docs" / "full-metric.md").read_text(encoding="utf-8")
    assert printed.partition("\n\nwritten")[0] in page
    assert (tmp_path / "picture.png").stat().st_size > 10_000

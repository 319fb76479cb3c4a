"""The benchmark of ensembles, in its smallest form: right before it is timed, and figures are written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "ensemble.py"


@pytest.mark.slow
def test_figures_say_where_they_come_from_and_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    options = ["--images", "random", "--most", "2", "--out", str(path)]
    subprocess.run([sys.executable, str(BENCHMARK), *options], check=True)
    about, *figures = (json.loads(line) for line in path.read_text().splitlines())
    assert {"session", "commit", "code", "command"} <= set(about)
    assert about["images"] == "random"
    assert {line["runs"] for line in figures if "runs" in line} == {1, 2}
    assert all(line["milliseconds"] > 0 for line in figures)
    assert path.with_suffix(".png").exists()

"""The examples run, and show what they say they show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(*arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]]
    # With another number of threads sums are rounded otherwise, and other networks are trained.
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=one_thread).stdout


def test_digits_learns() -> None:
    output = run("digits.py", "--epochs", "8")
    errors = [float(error) for error in re.findall(r"0\.\d{4}", output)]
    assert len(errors) == 6
    assert max(errors) < 0.15


def test_symmetries_are_found_certified_and_drawn_as_in_the_documentation(tmp_path: Path) -> None:
    output = run("discover.py", str(tmp_path / "picture.svg"))
    assert output.startswith("105 rescalings\n")
    assert "\nholds up to eps: " in output
    committed = EXAMPLES.parent / "docs" / "transformer.svg"
    assert (tmp_path / "picture.svg").read_text() == committed.read_text()


@pytest.mark.slow
def test_ensemble_learns() -> None:
    output = run("ensemble.py")
    errors = dict(re.findall(r"(\S+): test error (0\.\d{4})", output))
    assert set(errors) == {"b-sgd", "sm", "invariant-adamw"}
    assert max(map(float, errors.values())) < 0.1


def figures(output: str) -> dict[str, list[float]]:
    """Rows of a table: a name, then numbers."""
    rows = (re.fullmatch(r"(.*?)((?:\s+\d+\.\d+)+)", line) for line in output.splitlines())
    return {row[1].strip(): [float(number) for number in row[2].split()] for row in rows if row}


def test_equalization_makes_rounding_independent_of_the_scaling_and_no_worse() -> None:
    table = figures(run("equalize.py", "--quick"))
    assert table["equalize_"] == table["x5, equalize_"]
    for error in (0, 2):  # of int8, of int4
        assert table["equalize_"][error] < table["as it is"][error] < 0.5 * table["x5, as it is"][error]
        assert table["equalize_"][error] < 1.3 * table["pair by pair"][error]
    assert table["x5, equalize_"][1] > table["x5, as it is"][1] + 0.05


@pytest.mark.slow
def test_alignment_mends_the_mean_of_two_checkpoints() -> None:
    table = figures(run("average.py", "--quick"))
    same, spoiled, aligned = (
        table[f"mean{gauge}"] for gauge in (", same gauge", ", other gauge", " after align")
    )
    assert table["other"] == table["other, rescaled"]
    assert spoiled[1] > 1.5 * same[1]
    assert aligned[0] > spoiled[0]
    assert abs(aligned[1] - same[1]) < 0.05 * same[1]


@pytest.mark.slow
def test_a_language_model_learns_alike_from_two_scalings_with_invariant_adamw_alone() -> None:
    output = run("language_model.py", "--steps", "40")
    parted = {name: float(gap) for name, gap in re.findall(r"(.*): the curves part by up to (\S+)", output)}
    assert parted["invariant AdamW"] < 1e-9
    assert parted["AdamW"] > 0.01
    for before, after in re.findall(r"loss from (\S+) to (\S+),", output):
        assert float(after) < float(before) - 0.5

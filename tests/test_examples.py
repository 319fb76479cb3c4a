"""The examples run, and show what they say they show."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(*arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_digits_learns() -> None:
    output = run("digits.py", "--epochs", "8")
    errors = [float(error) for error in re.findall(r"0\.\d{4}", output)]
    assert len(errors) == 6
    assert max(errors) < 0.15


def test_symmetries_are_found_certified_and_drawn_as_in_the_documentation(tmp_path: Path) -> None:
    output = run("discover.py", str(tmp_path / "picture.svg"))
    assert output.startswith("105 rescalings\n")
    assert "\nholds: " in output
    committed = EXAMPLES.parent / "docs" / "transformer.svg"
    assert (tmp_path / "picture.svg").read_text() == committed.read_text()


def test_ensemble_learns() -> None:
    output = run("ensemble.py")
    errors = dict(re.findall(r"(\S+): test error (0\.\d{4})", output))
    assert set(errors) == {"b-sgd", "sm", "invariant-adamw"}
    assert max(map(float, errors.values())) < 0.1

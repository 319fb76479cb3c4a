"""The examples run, and show what they say they show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(*arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_digits_learns() -> None:
    output = run("digits.py", "--epochs", "8")
    errors = [float(error) for error in re.findall(r"0\.\d{4}", output)]
    assert len(errors) == 6
    assert max(errors) < 0.15


def test_invariance_draws_curves_that_split_for_sgd_and_coincide_for_the_others(tmp_path: Path) -> None:
    pixels = pytest.importorskip("matplotlib.image")
    out = tmp_path / "new" / "picture.png"
    output = run("invariance.py", "--out", str(out))
    gaps = dict(re.findall(r"(Arch\d +\w+): .* (\S+e[-+]\d+)", output))
    assert len(gaps) == 5
    for panel, gap in gaps.items():
        assert (float(gap) > 0.05) if panel.endswith("SGD") else (float(gap) < 1e-10)
    assert pixels.imread(out).std() > 0.05  # not a blank sheet

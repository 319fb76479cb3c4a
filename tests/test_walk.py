"""How many files a call passes through: what CONTRIBUTING.md says, and no more than a reader can hold."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = {
    "ScaledSGD, first step": 14,
    "ScaledSGD, later steps": 7,
    "FullMetricSGD, constructor": 22,
    "FullMetricSGD, first step": 22,
    "FullMetricSGD, later steps": 11,
}


def test_a_step_passes_through_few_files() -> None:
    """In a process of its own, where nothing was called before."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.walk"]
    table = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    files = {name: int(number) for name, number in re.findall(r"\| (\w.*?) \| (\d+) \|", table)}
    assert files.keys() >= MOST.keys()
    assert {name: files[name] for name in MOST if files[name] > MOST[name]} == {}
    written = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name, number in files.items():
        said = re.search(rf"\| {re.escape(name)} \| (\d+) \|", written)
        assert said, name
        assert number <= int(said[1]), name

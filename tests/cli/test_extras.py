"""An extra for the command line is enough for some commands; the others say what is missing."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from symoptim.cli.extras import EXTRAS

PROJECT = tomllib.loads((Path(__file__).parent.parent.parent / "pyproject.toml").read_text())["project"]
OF_THE_PAPER = [*EXTRAS["paper"], "numba"]


def packages_of(extra: str) -> set[str]:
    """Packages of an extra, with those of extras in it."""
    found: set[str] = set()
    for name in PROJECT["optional-dependencies"][extra]:
        inner = re.fullmatch(r"symoptim\[(.*)\]", name)
        found |= set().union(*map(packages_of, inner[1].split(","))) if inner else {name}
    return found


def test_extras_are_those_of_the_project() -> None:
    assert packages_of("cli") == set(EXTRAS["cli"].values())
    assert packages_of("fast") == set(EXTRAS["fast"].values())
    assert packages_of("paper") == set(EXTRAS["cli"].values()) | set(EXTRAS["paper"].values())


def run(*arguments: str, missing: list[str]) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.modules.update(dict.fromkeys({missing!r})); sys.argv[1:] = {list(arguments)!r}; "
    code += "from symoptim.__main__ import main; main()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["discover", "symoptim.models:arch1", "--input", "2,784", "--certify"],
        ["doctor"],
        ["bench", "symoptim.models:arch1", "--input", "2,784", "--turns", "1", "--device", "cpu"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_extra_for_the_command_line_is_enough(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments, missing=OF_THE_PAPER)
    assert done.returncode == 0, done.stderr


def test_without_it_the_command_says_so() -> None:
    for package in ("typer", "rich"):
        done = run("doctor", missing=[package])
        assert done.returncode == 1
        assert done.stderr == f"error: this command needs {package}: in a clone, pip install '.[cli]'\n"


def test_commands_say_which_extra_installs_what_they_need(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    done = run("reproduce", "table2", "--data", "digits", "--out", out, missing=["sklearn"])
    assert done.returncode == 1
    assert done.stderr.endswith("error: this command needs sklearn: in a clone, pip install '.[paper]'\n")


def test_other_packages_that_are_missing_are_not_explained_away() -> None:
    done = run("doctor", missing=["torch"])
    assert "ModuleNotFoundError" in done.stderr


def test_starting_the_command_line_imports_no_drawing_or_downloading() -> None:
    code = f"import sys, symoptim.cli.app; assert not set({OF_THE_PAPER!r}) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

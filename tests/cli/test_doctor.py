"""``symoptim doctor`` says what this machine has, and what to install, whatever is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from symoptim import __version__
from symoptim.cli import doctor as module
from symoptim.cli.app import app


def doctor(**variables: str) -> str:
    result = CliRunner().invoke(app, ["doctor"], env=variables, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_it_names_versions_kernels_and_folders(tmp_path: Path) -> None:
    said = doctor(SYMOPTIM_DATA=str(tmp_path))
    assert f"symoptim                 {__version__}, in " in said
    assert f"torch                    {torch.__version__}" in said
    assert f"SYMOPTIM_DATA            {tmp_path}, writable" in said
    assert "cache of downloads" in said
    assert "kernels compiled by numba for float32, float64; others by their" in said
    assert said.rstrip().endswith("nothing is missing")


def test_kernels_in_the_cache_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = list(module._cached_kernels())
    assert len(kernels) >= 2
    assert all(callable(kernel.py_func) for kernel in kernels)
    monkeypatch.setattr(module, "_is_held", lambda kernel: kernel is kernels[0])
    assert f"1 of {len(kernels)} kernels in numba's cache; the others are compiled when" in doctor()


def test_a_kernel_is_held_once_it_was_called(tmp_path: Path) -> None:
    code = """
import torch, symoptim
from symoptim.cli.doctor import _cached_kernels, _is_held
before = [kernel for kernel in _cached_kernels() if _is_held(kernel)]
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
model(torch.ones(1, 4)).sum().backward()
symoptim.ScaledSGD(symoptim.param_groups(model), lr=0.1, fused=True).step()
after = [kernel.py_func.__name__ for kernel in _cached_kernels() if _is_held(kernel)]
assert not before and after, (before, after)
"""
    run_alone(code, NUMBA_CACHE_DIR=str(tmp_path))


def test_a_machine_without_cuda_is_told_so() -> None:
    said = doctor()
    assert ("no device: torch is built for" in said) == (not torch.cuda.is_available())


@pytest.mark.parametrize(
    ("missing", "extra"), [("numba", "fast"), ("matplotlib", "paper"), ("numba matplotlib", "fast,paper")]
)
def test_what_is_missing_is_named_with_the_extra(missing: str, extra: str) -> None:
    said = run_alone(f"{without(missing.split())}; {COMMAND.format(['doctor'])}")
    assert said.rstrip().endswith(f"in a clone, pip install '.[{extra}]'")
    for package in missing.split():
        assert f"without {package}" in said
    assert ("the reference, in torch operations: the kernels for CPUs" in said) == ("numba" in missing)


def test_access_is_said_of_folders_that_are_there_and_of_others(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert module._access(tmp_path) == "writable"
    assert module._access(tmp_path / "new" / "folder") == "not there yet"
    assert module._access(tmp_path / "file") == "which is no folder"
    assert module._access(tmp_path / "file" / "below") == "not there, and cannot be made"


def test_help_has_an_example() -> None:
    assert "Example: symoptim doctor" in CliRunner().invoke(app, ["doctor", "--help"]).output


COMMAND = "import sys; sys.argv[1:] = {}; from symoptim.__main__ import main; main()"


def without(packages: list[str]) -> str:
    return f"import sys; sys.modules.update(dict.fromkeys({packages!r}))"


def run_alone(code: str, **variables: str) -> str:
    """What a process of its own prints."""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | variables, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout

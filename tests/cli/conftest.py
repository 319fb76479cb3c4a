"""A small experiment, carried out without disturbance, for others to be compared with."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from symoptim.cli.app import app

SMALL = ["reproduce", "table2", "--data", "digits", "--repeats", "1"]


@pytest.fixture(scope="session")
def small() -> list[str]:
    """Arguments of the command."""
    return SMALL


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of its results."""
    folder = tmp_path_factory.mktemp("undisturbed")
    result = CliRunner().invoke(app, [*SMALL, "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return folder

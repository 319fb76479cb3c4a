import html
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from symoptim.cli.app import app


def test_a_report_is_printed_and_written_without_training(undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "records.sqlite").write_bytes((undisturbed / "records.sqlite").read_bytes())
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    for words in ("Test error on digits", "The paper's claims, judged", "undecided"):
        assert words in result.output
    page = html.unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "not the paper's images" in page
    for name in ("table2.md", "table2.csv", "trajectories.csv"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (undisturbed / name).read_text(
            encoding="utf-8"
        )


def test_reproduce_ends_with_the_page(undisturbed: Path) -> None:
    assert (undisturbed / "report.html").exists()


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no records at"):
        CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)


def test_architectures_are_drawn(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "architectures", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["architectures.png", "architectures.svg"]


def test_a_report_needs_no_torch(undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "records.sqlite").write_bytes((undisturbed / "records.sqlite").read_bytes())
    code = "import sys; sys.modules['torch'] = None; from symoptim.__main__ import main; main()"
    command = [sys.executable, "-c", code, "report", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert f"the page, to open in a browser: {tmp_path / 'report.html'}" in run.stdout

import csv
from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.paper.report.write import write_report


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="no records at"):
        write_report(tmp_path)


def test_a_report_is_a_page_figures_markdown_and_csv(undisturbed_records: Path, tmp_path: Path) -> None:
    (tmp_path / "records.sqlite").write_bytes(undisturbed_records.read_bytes())
    summary, judgments, paths = write_report(tmp_path)
    assert [path.name for path in paths] == [
        "report.html",
        "table2.md",
        "table2.csv",
        "trajectories.csv",
        "claims.md",
        "claims.csv",
    ]
    figures = [f"{name}.{kind}" for name in ("trajectories", "architectures") for kind in ("png", "svg")]
    assert all((tmp_path / name).stat().st_size > 10_000 for name in figures)
    with (tmp_path / "claims.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["number"]), row["verdict"]) for row in rows] == [
        (j.claim.number, j.verdict) for j in judgments
    ]
    assert (tmp_path / "claims.md").read_text(encoding="utf-8").count("\n") == 15
    assert (tmp_path / "table2.csv").read_text(encoding="utf-8").count("\n") == len(summary.cells) + 1

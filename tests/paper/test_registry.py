import csv
from pathlib import Path

import pytest
import torch

from symoptim.errors import RecordsError
from symoptim.paper.records.database import Records
from symoptim.paper.registry import write_report
from symoptim.paper.runner import carry_out
from symoptim.paper.table2.experiment import Table2
from tests.paper.table2.test_experiment import SMALL
from tests.support.small import small_data


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="no records at"):
        write_report(tmp_path)


def test_records_of_an_unknown_experiment_are_named(tmp_path: Path) -> None:
    with Records(tmp_path / "records.sqlite", torch="2", device="cpu") as records:
        records.begin("cifar", {})
    with pytest.raises(RecordsError, match="has records of 'cifar', which there is no report about"):
        write_report(tmp_path)


def test_a_report_is_a_page_figures_markdown_and_csv(tmp_path: Path) -> None:
    experiment = Table2(SMALL, small_data(torch.float32), torch.device("cpu"))
    assert carry_out(experiment, tmp_path / "records.sqlite")
    name, summary, paths = write_report(tmp_path)
    assert name == "mnist"
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
        (j.claim.number, j.verdict) for j in summary.judgments
    ]
    assert (tmp_path / "claims.md").read_text(encoding="utf-8").count("\n") == 15
    assert (tmp_path / "table2.csv").read_text(encoding="utf-8").count("\n") == len(summary.cells) + 1

import csv
import io
import math

import pytest

from symoptim.paper.table2.cells import as_csv, as_markdown, cells, headings, lines
from symoptim.paper.table2.published import TABLE2, Key
from tests.support.recorded import a_recorded_run, an_experiment


def test_the_papers_table_is_as_printed() -> None:
    assert len(TABLE2) == 24
    assert TABLE2[Key(2, "exponential", "arch1", "un")] == (0.0220, 0.0057)
    assert TABLE2[Key(4, "bold", "arch2", "un")] == (0.0179, 0.0025)
    assert TABLE2[Key(4, "exponential", "arch2", "b-sgd")] == (0.0218, 0.0028)


def only_cell(runs, **options):
    experiment = an_experiment(
        architectures=["arch1"], depths=[2], schedules=["bold"], updates=["sm"], **options
    )
    (cell,) = cells(experiment, runs)
    return cell


def test_a_cell_is_the_mean_of_last_test_errors_with_the_samples_deviation() -> None:
    runs = [a_recorded_run(repeat=k, errors=[0.9, error]) for k, error in enumerate((0.01, 0.02, 0.06))]
    cell = only_cell(runs, repeats=3)
    assert cell.mean == pytest.approx(0.03)
    assert cell.deviation == pytest.approx(math.sqrt((0.02**2 + 0.01**2 + 0.03**2) / 2))
    assert (len(cell.errors), cell.diverged, cell.missing) == (3, 0, 0)
    assert cell.paper == (0.0271, 0.0076)


def test_diverged_runs_are_counted_and_left_out() -> None:
    runs = [a_recorded_run(repeat=0, errors=[0.9], diverged=True), a_recorded_run(repeat=1, errors=[0.02])]
    cell = only_cell(runs, repeats=2)
    assert (cell.mean, len(cell.errors), cell.diverged) == (0.02, 1, 1)
    assert math.isnan(cell.deviation)
    assert cell.text == ".0200 (1 diverged)"


def test_runs_under_way_or_not_begun_are_missing() -> None:
    cell = only_cell([a_recorded_run(repeat=0, errors=[0.02], reason=None)], repeats=3)
    assert (len(cell.errors), cell.missing) == (0, 3)
    assert cell.text == "- (3 missing)"


def test_the_table_shows_the_papers_lines_on_mnist_only() -> None:
    for data, shown in (("mnist", [False, True] * 4), ("digits", [False] * 4)):
        table = lines(cells(an_experiment(data=data), []))
        assert [line.is_paper for line in table] == shown
    assert headings(cells(an_experiment(), [])) == [
        f"{architecture} {update}" for architecture in ("Arch1", "Arch2") for update in ("B-SGD", "SM", "UN")
    ]


def test_an_extra_update_has_a_column_and_no_number_of_the_papers() -> None:
    experiment = an_experiment(updates=["sm", "lion"], titles={"sm": "SM", "lion": "Lion"})
    table = cells(experiment, [])
    assert headings(table) == ["Arch1 SM", "Arch1 Lion", "Arch2 SM", "Arch2 Lion"]
    assert [cell.paper is None for cell in table[:2]] == [False, True]
    assert lines(table)[1].texts[1] == ""


def test_csv_has_every_digit_and_markdown_every_cell() -> None:
    experiment = an_experiment(repeats=1)
    run = a_recorded_run(repeat=0, errors=[1 / 3])
    rows = list(csv.DictReader(io.StringIO(as_csv(cells(experiment, [run])))))
    assert len(rows) == 24
    row = next(row for row in rows if row["runs"] == "1")
    assert float(row["mean"]) == 1 / 3
    assert (row["depth"], row["schedule"], row["architecture"], row["update"]) == ("2", "bold", "arch1", "sm")
    assert (row["low"], row["high"]) == ("nan", "nan")
    assert (row["paper_mean"], row["paper_deviation"]) == ("0.0271", "0.0076")
    markdown = as_markdown(cells(experiment, [run])).splitlines()
    assert len(markdown) == 2 + 8
    assert {line.count("|") for line in markdown} == {8}
    assert "| .3333 |" in markdown[4]

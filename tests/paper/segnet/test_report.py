import re
import sqlite3
from pathlib import Path

import pytest

from symoptim.paper.report.write import SegNetReport, write_report
from tests.paper.segnet.conftest import asked_otherwise
from tests.paper.table2.test_report import Reader


def read(folder: Path) -> tuple[str, Reader]:
    written = write_report(folder)
    assert isinstance(written, SegNetReport)
    page = written.paths[0].read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    return page, reader


PARTS = {"scores", "pictures", "classes", "curves", "sensitivity", "protocol", "provenance"}


def links(reader: Reader) -> set[str]:
    """Places within the page that something leads to."""
    return {address[1:] for address in reader.addresses if address.startswith("#")}


def test_every_part_is_there_and_every_link_leads_to_one(scene_folder: Path) -> None:
    _, reader = read(scene_folder)
    assert links(reader) == PARTS
    assert links(reader) <= set(reader.ids)


def forget(folder: Path, runs: str) -> None:
    """Delete runs from the records of a folder."""
    with sqlite3.connect(folder / "records.sqlite") as connection:
        connection.execute("UPDATE experiment SET finished = NULL")
        for table in ("predictions", "confusions", "epochs", "runs"):
            connection.execute(f"DELETE FROM {table} WHERE run LIKE ?", (runs,))


def test_nothing_is_fetched_from_elsewhere(scene_folder: Path) -> None:
    _, reader = read(scene_folder)
    outside = [a for a in reader.addresses if not a.startswith(("#", "data:image/png;base64,"))]
    assert not outside


def test_the_files_are_a_page_tables_and_pictures(scene_folder: Path) -> None:
    written = write_report(scene_folder)
    assert [path.name for path in written.paths] == [
        "report.html",
        "scores.md",
        "scores.csv",
        "curves.csv",
        "sensitivity.csv",
    ]
    for name in ("predictions.png", "curves.png", "sensitivity.png"):
        assert (scene_folder / name).stat().st_size > 5_000


def test_without_a_search_the_page_says_so(scene_folder: Path) -> None:
    forget(scene_folder, "search/%")
    page, _ = read(scene_folder)
    assert "no rates were searched" in page
    assert not (scene_folder / "sensitivity.csv").exists()


@pytest.mark.parametrize(("runs", "searched"), [("%", False), ("full/%", True)])
def test_before_any_full_run_has_ended_there_is_a_page_that_says_so(
    scene_folder: Path, runs: str, searched: bool
) -> None:
    forget(scene_folder, runs)
    page, reader = read(scene_folder)
    assert page.count("No full run has ended yet.") == 2  # instead of pictures and of curves
    assert "4 run(s) have not ended" in page
    assert ("no rates were searched" in page) is not searched
    assert ('aria-label="Test score against learning rate"' in page) is searched
    assert links(reader) == PARTS - {"classes"}
    assert links(reader) <= set(reader.ids)


def test_without_results_there_is_no_table_of_classes_and_of_the_search_only_its_own(
    scene_folder: Path,
) -> None:
    def headers() -> list[str]:
        return [table[0][0].strip() for table in read(scene_folder)[1].tables[1:3]]

    assert headers() == ["Class", "Update"]
    assert "ran in full; of each update" in read(scene_folder)[0]
    forget(scene_folder, "full/%")
    page, reader = read(scene_folder)
    _, rates, *_ = reader.tables
    assert [text.strip() for text in rates[0]] == ["Update", "0.001", "0.1", "1e+30", "Spread"]
    assert "classes" not in reader.ids
    assert "ran in full; of each update" not in page


def test_where_every_full_run_diverged_the_page_says_so(scene_folder: Path) -> None:
    with sqlite3.connect(scene_folder / "records.sqlite") as connection:
        connection.execute("UPDATE runs SET diverged = 1 WHERE run LIKE 'full/%'")
    page, reader = read(scene_folder)
    assert page.count("Every full run diverged.") == 2
    assert "has ended yet" not in page
    assert "4 run(s) diverged" in page
    assert links(reader) == PARTS - {"classes"}
    assert links(reader) <= set(reader.ids)


def test_while_one_update_is_still_to_come_not_every_run_has_diverged(scene_folder: Path) -> None:
    with sqlite3.connect(scene_folder / "records.sqlite") as connection:
        connection.execute("UPDATE experiment SET finished = NULL")
        connection.execute("UPDATE runs SET diverged = 1 WHERE run LIKE 'full/sgd/%'")
    forget(scene_folder, "full/un/%")
    page, _ = read(scene_folder)
    assert "Every full run diverged." not in page
    assert "2 run(s) have not ended" in page
    assert "2 run(s) diverged" in page


def test_drawn_scenes_are_called_so_and_have_no_published_scores(scene_folder: Path) -> None:
    asked_otherwise(scene_folder, data="roads")
    page, _ = read(scene_folder)
    assert "drawn by a program" in page
    assert "what others have published" not in page
    assert not re.search("arXiv:1511.00561", page)

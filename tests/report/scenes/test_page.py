import re
import sqlite3
from pathlib import Path

from report.scenes.conftest import asked_otherwise
from report.test_page import Reader
from symoptim.report.write import SegNetReport, write_report


def read(folder: Path) -> tuple[str, Reader]:
    written = write_report(folder)
    assert isinstance(written, SegNetReport)
    page = written.paths[0].read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    return page, reader


def test_every_part_is_there_and_every_link_leads_to_one(scene_folder: Path) -> None:
    _, reader = read(scene_folder)
    parts = {"scores", "pictures", "classes", "curves", "sensitivity", "protocol", "provenance"}
    assert parts <= set(reader.ids)
    inside = {address[1:] for address in reader.addresses if address.startswith("#")}
    assert inside <= set(reader.ids)
    assert parts <= inside


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
        "sensitivity.csv",
    ]
    for name in ("predictions.png", "curves.png", "sensitivity.png"):
        assert (scene_folder / name).stat().st_size > 5_000


def test_without_a_search_the_page_says_so(scene_folder: Path) -> None:
    with sqlite3.connect(scene_folder / "records.sqlite") as connection:
        connection.executescript(
            "DELETE FROM epochs WHERE run LIKE 'search/%'; DELETE FROM confusions WHERE run LIKE 'search/%';"
            "DELETE FROM runs WHERE run LIKE 'search/%'"
        )
    page, _ = read(scene_folder)
    assert "no rates were searched" in page
    assert not (scene_folder / "sensitivity.csv").exists()


def test_before_any_run_has_ended_there_is_a_page_that_says_so(scene_folder: Path) -> None:
    with sqlite3.connect(scene_folder / "records.sqlite") as connection:
        connection.executescript(
            "DELETE FROM predictions; DELETE FROM confusions; DELETE FROM epochs; DELETE FROM runs"
        )
    page, _ = read(scene_folder)
    assert "No run has ended yet." in page
    assert "4 run(s) have not ended" in page


def test_drawn_scenes_are_called_so_and_have_no_published_scores(scene_folder: Path) -> None:
    asked_otherwise(scene_folder, data="roads")
    page, _ = read(scene_folder)
    assert "drawn by a program" in page
    assert "what others have published" not in page
    assert not re.search("arXiv:1511.00561", page)

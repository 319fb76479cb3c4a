import re
import sqlite3
from pathlib import Path

import pytest

from symoptim.paper.registry import write_report
from symoptim.paper.segnet.report import facts, protocol_facts, remarks
from symoptim.paper.segnet.summary import SceneSummary
from symoptim.paper.segnet.updates import SCENE_OPTIMIZERS
from tests.paper.segnet.conftest import Sample, asked_otherwise, scored
from tests.paper.table2.test_report import Reader


def read(folder: Path) -> tuple[str, Reader]:
    written = write_report(folder)
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
        return [table[0][0].strip() for table in read(scene_folder)[1].tables[1:4]]

    assert headers() == ["The paper's", "Class", "Update"]
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


def test_the_facts_say_what_was_trained(scene_summary: SceneSummary) -> None:
    said = dict(facts(scene_summary))
    assert said["network"] == "SegNet-Basic, from scratch"
    assert said["data"] == "14 training images of CamVid, 24 x 16 pixels"
    # Of both updates: two repeats, and a rate that was not chosen.
    assert said["runs"] == "6 of 2 epochs, 6 short ones that chose which rates ran in full"
    best = max(scene_summary.results, key=lambda result: result.mean)
    assert said["highest mean IoU"] == f"{best.mean:.3f}: {best.title}"
    assert dict(facts(scene_summary._replace(search=[])))["runs"] == "6 of 2 epochs"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": "roads"}, "These scenes are drawn by a program: scores say nothing about CamVid."),
        ({"profile": "quick"}, "do not compare with others'"),
    ],
)
def test_what_readers_have_to_know_is_said(
    scene_summary: SceneSummary, change: dict[str, str], words: str
) -> None:
    unsearched = scene_summary._replace(search=[])
    assert remarks(unsearched) == []
    asked = scene_summary.experiment.configuration | change
    summary = unsearched._replace(experiment=scene_summary.experiment._replace(configuration=asked))
    (remark,) = remarks(summary)
    assert words in remark


@pytest.mark.parametrize(
    ("sm", "sgd", "said"), [([0.5], [0.4], True), ([0.5], [], True), ([], [0.4], False)], ids=str
)
def test_that_un_and_sm_coincide_is_said_where_both_have_results(
    scene_summary: SceneSummary, sm: Sample, sgd: Sample, said: bool
) -> None:
    summary = scored(scene_summary._replace(search=[]), {"un": [0.6], "sm": sm, "sgd": sgd})
    assert remarks(summary) == (
        [
            "UN and SM take the same path here, for every filter they move is normalized behind it: they "
            "differ by rounding, which training magnifies. A repeat of both counts as one observation."
        ]
        if said
        else []
    )


def repeated_at(summary: SceneSummary, *rates: float) -> SceneSummary:
    """The same runs, had these been the rates that were repeated."""
    results = [
        result._replace(
            runs=tuple(run._replace(configuration={**run.configuration, "rate": rate}) for run in result.runs)
        )
        for result, rate in zip(summary.results, rates, strict=True)
    ]
    return summary._replace(results=results)


@pytest.mark.parametrize(
    ("rates", "titles"),
    [
        ((0.1, 0.1), None),
        ((0.1, 1e-3), "SGD (0.001)"),
        ((1e30, 0.1), "UN (1e+30)"),
        ((1e-3, 1e30), "UN (0.001); SGD (1e+30)"),
    ],
)
def test_a_best_rate_at_the_edge_of_the_grid_is_said(
    scene_summary: SceneSummary, rates: tuple[float, float], titles: str | None
) -> None:
    summary = repeated_at(scene_summary, *rates)
    said = f"The best rate is at the edge of the grid, and one beyond may be better: {titles}."
    assert remarks(summary) == ([said] if titles else [])
    assert remarks(summary._replace(search=[])) == []


def test_runs_that_are_missing_or_lost_are_counted(scene_summary: SceneSummary) -> None:
    un, sgd = scene_summary.results
    summary = scene_summary._replace(results=[un._replace(missing=2), sgd._replace(diverged=1)], search=[])
    assert remarks(summary) == [
        "2 run(s) have not ended: run the same command to go on.",
        "1 run(s) diverged; they are counted, and left out of all means.",
    ]


def test_camvids_images_are_credited(scene_folder: Path) -> None:
    assert "Brostow" in read(scene_folder)[0]


def asked(summary: SceneSummary, *, compiled: bool = False, **protocol: object) -> dict[str, str]:
    """The protocol in words, had it been asked for otherwise."""
    configuration = dict(summary.experiment.configuration)
    configuration |= {"compiled": compiled, "protocol": configuration["protocol"] | protocol}
    experiment = summary.experiment._replace(configuration=configuration)
    return dict(protocol_facts(summary._replace(experiment=experiment)))


def test_the_protocol_describes_every_update_by_its_title(scene_summary: SceneSummary) -> None:
    said = asked(scene_summary)
    assert (said["UN"], said["SGD"]) == (SCENE_OPTIMIZERS["un"].words, SCENE_OPTIMIZERS["sgd"].words)
    assert "mean loss" in said["rate"]


def test_the_protocol_names_the_rates_and_the_crop(scene_summary: SceneSummary) -> None:
    said = asked(scene_summary)
    assert said["rates tried"] == "0.001, 0.1, 1e+30"
    assert said["choice of rates"].startswith(
        "short runs of 1 epochs on crops of 16 x 8 pixels; the best 2 of"
    )
    # No more than there are, and no longer than a full run.
    others = asked(scene_summary, finalists=5, search_epochs=9, search_crop=None)["choice of rates"]
    assert others.startswith("short runs of 2 epochs; the best 3 of")
    assert asked(scene_summary, rates=[])["rates tried"].startswith("none")


def test_the_protocol_says_what_is_done_to_images_and_how_steps_are_computed(
    scene_summary: SceneSummary,
) -> None:
    said = asked(scene_summary)
    assert said["images"] == "windows of 0.6 to 1.2 times their size; half of them mirrored"
    assert "torch.compile" not in said["precision"]
    unzoomed = {"zoom": None, "flip": True, "crop": None}
    other = asked(scene_summary, compiled=True, augmentation=unzoomed, weighting="none")
    assert (other["images"], other["class weights"]) == (
        "half of them mirrored",
        "none, from the training set",
    )
    assert other["precision"].endswith("torch.compile")

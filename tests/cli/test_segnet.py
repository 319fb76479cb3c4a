"""``symoptim reproduce segnet``: what it prints and leaves, with CamVid and without, killed and taken up."""

import csv
import gzip
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from symoptim.cli.app import app
from symoptim.cli.options import Rates, SceneUpdates
from symoptim.paper.data import roads
from symoptim.paper.segnet.protocol import PROFILES, segnet_protocol
from symoptim.paper.segnet.updates import SCENE_OPTIMIZERS
from tests.cli.test_reproduce import refuse
from tests.cli.test_survival import recorded_epochs, wait_for_epochs
from tests.support.tiny_camvid import write
from tests.support.tiny_segnet import COUNTS, TINY

PROGRAM = str(Path(__file__).parents[1] / "support" / "tiny_segnet.py")
QUICK = ["reproduce", "segnet", "--profile", "quick", "--data", "roads", "--updates", "un,sgd"]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick profile, so small that tests can wait for it; no data but those of the test."""
    monkeypatch.setitem(PROFILES, "quick", PROFILES["quick"] | TINY)
    monkeypatch.setattr(roads, "COUNTS", COUNTS)
    monkeypatch.delenv("SYMOPTIM_DATA", raising=False)


def start(out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, PROGRAM, *QUICK, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(out: Path) -> str:
    process = start(out)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output


def scores(out: Path) -> list[dict[str, str]]:
    """All recorded scores, without the time they took."""
    with (out / "scores.csv").open(encoding="utf-8") as file:
        return [{name: row[name] for name in row if name != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def undisturbed_scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scenes")
    output = finish(out)
    assert "Scores on the test set of roads, profile quick" in output
    return out


def test_scores_pictures_and_a_page_are_left(undisturbed_scenes: Path) -> None:
    names = {path.name for path in undisturbed_scenes.iterdir()}
    assert {"report.html", "scores.md", "scores.csv", "predictions.png", "curves.png"} <= names
    rows = scores(undisturbed_scenes)
    assert {(row["update"], row["set"]) for row in rows} == {
        (update, part) for update in ("un", "sgd") for part in ("train", "validation", "test")
    }
    assert all(0 < float(row["mean_iou"]) < 1 for row in rows)


@pytest.mark.slow
def test_killed_while_it_trains_it_goes_on_to_the_same_scores(
    undisturbed_scenes: Path, tmp_path: Path
) -> None:
    for _ in range(3):
        before = recorded_epochs(tmp_path)
        process = start(tmp_path)
        wait_for_epochs(process, tmp_path, before)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    finish(tmp_path)
    assert scores(tmp_path) == scores(undisturbed_scenes)


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(undisturbed_scenes: Path, tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_epochs(process, tmp_path, 1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert "to go on from its last checkpoint: " in errors
    assert "Traceback" not in errors
    finish(tmp_path)
    assert scores(tmp_path) == scores(undisturbed_scenes)


def test_what_is_finished_is_not_trained_again(undisturbed_scenes: Path) -> None:
    before = scores(undisturbed_scenes)
    process = start(undisturbed_scenes)
    _, errors = process.communicate()
    assert "nothing is trained" in errors
    assert scores(undisturbed_scenes) == before


@pytest.mark.usefixtures("tiny")
def test_without_camvid_drawn_scenes_stand_in_and_it_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*QUICK[:4], "--epochs", "1", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "notice: no CamVid here, so these are drawn road scenes" in result.output
    assert "drawn by a program" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("tiny")
def test_camvid_is_taken_from_the_folder_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "camvid", times=8)
    monkeypatch.setenv("SYMOPTIM_DATA", str(tmp_path))
    out = tmp_path / "out"
    result = CliRunner().invoke(app, [*QUICK[:4], "--epochs", "1", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "notice" not in result.output
    assert "published" not in result.output  # so small a network does not compare
    page = (out / "report.html").read_text(encoding="utf-8")
    for words in ("CamVid", "Brostow"):
        assert words in page


def test_the_full_run_fits_a_narrow_terminal_and_stands_beside_published_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = Path(__file__).parents[2] / "docs" / "results" / "segnet" / "records.sqlite.gz"
    (tmp_path / "records.sqlite").write_bytes(gzip.decompress(committed.read_bytes()))
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "…" not in result.output  # nothing is cut off
    assert "published" in result.output
    assert "arXiv" not in result.output  # sources are on the page, where there is room
    output = " ".join(result.output.split())
    for number in ("0.559", "0.533", "-0.026", "95 % interval -0.053 to +0.000, p = 0.051"):
        assert number in output
    assert "arXiv:1511.00561" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("tiny")
def test_a_damaged_camvid_is_named_and_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "camvid")
    (tmp_path / "camvid" / "train" / "frame_1.png").write_bytes(b"no picture")
    monkeypatch.setenv("SYMOPTIM_DATA", str(tmp_path))
    message = refuse(monkeypatch, "segnet", "--profile", "quick", "--out", str(tmp_path / "out"))
    assert "frame_1.png" in message
    assert not (tmp_path / "out" / "records.sqlite").exists()


@pytest.mark.usefixtures("tiny")
def test_a_class_without_pixels_is_named_before_there_are_records_and_can_do_without_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (write(tmp_path / "camvid", mode="L", times=8) / "trainannot").iterdir():
        with Image.open(file) as labels:
            changed = labels.point(lambda label: 11 if label == 6 else label)  # no signs
        changed.save(file)
    out = tmp_path / "out"
    command = [
        "segnet",
        "--profile",
        "quick",
        "--data-dir",
        str(tmp_path),
        "--out",
        str(out),
        "--epochs",
        "1",
    ]
    message = refuse(monkeypatch, *command)
    assert message.startswith("error: sign occurs in no training image")
    assert "--weighting none" in message
    assert not (out / "records.sqlite").exists()
    result = CliRunner().invoke(app, ["reproduce", *command, "--weighting", "none"])
    assert result.exit_code == 0, result.output


@pytest.mark.usefixtures("tiny")
def test_too_few_images_for_a_batch_are_refused_before_there_are_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write(tmp_path / "camvid"), tmp_path / "out"
    message = refuse(
        monkeypatch, "segnet", "--profile", "quick", "--data-dir", str(folder), "--out", str(out)
    )
    assert message.startswith("error: there are 3 training images, and a batch takes 8")
    assert not (out / "records.sqlite").exists()


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--profile", "paper"],
            "error: there is no CamVid. CamVid is free for research and not downloaded: give --data-dir, or "
            "set SYMOPTIM_DATA; --profile quick can do without",
        ),
        (["--data-dir", "nowhere"], "error: there is no nowhere: give a folder that has CamVid in it"),
        (
            ["--data", "roads", "--data-dir", "there"],
            "error: drawn scenes need no files: leave out --data-dir there, or --data roads",
        ),
        (["--updates", "un,lion"], "error: unknown update 'lion'; choose from un, un-momentum, sm"),
        (["--updates", ","], "error: updates must be different and at least one, got none"),
        (["--updates", ""], "error: updates must be different and at least one, got none"),
        (["--epochs", "0"], "error: epochs must be at least 1, got 0"),
        (["--repeats", "0"], "error: repeats must be at least 1, got 0"),
        (["--rates", "0.1,fast"], "error: --rates must be numbers separated by commas, or none"),
        (["--rates", ""], "error: --rates must be numbers separated by commas, or none; got ''"),
        (["--rates", "0.1,-1"], "error: rates must be finite numbers above 0, got 0.1, -1"),
        (
            ["--compile", "--device", "cpu"],
            "error: --compile is for CUDA devices, this is cpu: leave it out",
        ),
        (["--device", "tpu"], "error: device 'tpu' cannot be used here"),
    ],
)
def test_bad_options_are_refused_before_anything_is_done(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert message in refuse(monkeypatch, "segnet", *arguments, "--out", str(out))
    assert not out.exists()


def test_help_names_every_update() -> None:
    (option,) = SceneUpdates.__metadata__
    assert option.help == f"Of {', '.join(SCENE_OPTIMIZERS)}."
    quick, paper = (",".join(segnet_protocol(profile).updates) for profile in ("quick", "paper"))
    assert option.show_default == f"quick {quick}; paper {paper}"


def test_help_describes_the_grid_of_rates() -> None:
    (option,) = Rates.__metadata__
    assert segnet_protocol("quick").rates == ()
    rates = segnet_protocol("paper").rates
    assert rates == tuple(sorted(rates))
    assert option.show_default == f"quick none; paper {len(rates)} from {rates[0]:g} to {rates[-1]:g}"

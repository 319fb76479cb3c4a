"""``symoptim reproduce segnet``: what it prints and leaves, with CamVid and without, killed and taken up."""

import csv
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.test_reproduce import refuse
from cli.test_survival import recorded_epochs, wait_for_epochs
from cli.tiny_segnet import COUNTS, TINY
from data.tiny_camvid import write
from symoptim.cli.app import app
from symoptim.cli.options import SceneUpdates
from symoptim.data import roads
from symoptim.experiments.segnet_protocol import PROFILES
from symoptim.segmentation.updates import SCENE_UPDATES

PROGRAM = str(Path(__file__).parent / "tiny_segnet.py")
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
    assert "Scores on roads's test set, profile quick" in output
    return out


def test_scores_pictures_and_a_page_are_left(undisturbed_scenes: Path) -> None:
    names = {path.name for path in undisturbed_scenes.iterdir()}
    assert {"report.html", "scores.md", "scores.csv", "predictions.png", "curves.png"} <= names
    rows = scores(undisturbed_scenes)
    assert {(row["update"], row["set"]) for row in rows} == {
        (update, part) for update in ("un", "sgd") for part in ("train", "validation", "test")
    }
    assert all(0 < float(row["mean_iou"]) < 1 for row in rows)


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
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "CamVid" in page
    assert "Brostow" in page


@pytest.mark.usefixtures("tiny")
def test_a_damaged_camvid_is_named_and_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "camvid")
    (tmp_path / "camvid" / "train" / "frame_1.png").write_bytes(b"no picture")
    monkeypatch.setenv("SYMOPTIM_DATA", str(tmp_path))
    message = refuse(monkeypatch, "segnet", "--profile", "quick", "--out", str(tmp_path / "out"))
    assert "frame_1.png" in message
    assert not (tmp_path / "out" / "records.sqlite").exists()


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "paper"], "error: there is no CamVid. CamVid is free for research and not downloaded"),
        (["--data-dir", "nowhere"], "error: nowhere has no CamVid"),
        (["--updates", "un,lion"], "error: unknown update 'lion'; choose from un, un-momentum, sm"),
        (["--updates", ","], "error: updates must be different and at least one, got none"),
        (["--epochs", "0"], "error: epochs must be at least 1, got 0"),
        (["--repeats", "0"], "error: repeats must be at least 1, got 0"),
        (["--rates", "0.1,fast"], "error: --rates must be numbers separated by commas, or none"),
        (["--rates", "0.1,-1"], "error: rates must be finite numbers above 0, got 0.1, -1"),
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
    assert option.help == f"Of {', '.join(SCENE_UPDATES)}."

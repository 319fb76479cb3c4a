"""Kills, full disks and Ctrl-C: nothing recorded is lost, and the table comes out the same."""

import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

KILLABLE = str(Path(__file__).parents[1] / "support" / "killable.py")


def start(arguments: list[str], out: Path, **options) -> subprocess.Popen[str]:
    command = [sys.executable, KILLABLE, *arguments, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(arguments: list[str], out: Path, **options) -> tuple[int, str, str]:
    process = start(arguments, out, **options)
    output, errors = process.communicate()
    return process.returncode, output, errors


def recorded_epochs(out: Path) -> int:
    if not (out / "records.sqlite").exists():
        return 0
    try:
        with sqlite3.connect(f"file:{out / 'records.sqlite'}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT count(*) FROM epochs").fetchone()[0]
    except sqlite3.OperationalError:  # it has no tables yet
        return 0


def wait_for_epochs(process: subprocess.Popen[str], out: Path, more_than: int) -> None:
    deadline = time.monotonic() + 120
    while recorded_epochs(out) <= more_than and process.poll() is None:
        assert time.monotonic() < deadline, "nothing was recorded"
        time.sleep(0.05)


def assert_same_results(out: Path, undisturbed: Path) -> None:
    for name in ("table2.csv", "trajectories.csv"):
        assert (out / name).read_text() == (undisturbed / name).read_text()


def test_killed_while_it_trains_it_goes_on_to_the_same_table(
    small: list[str], undisturbed: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        before = recorded_epochs(tmp_path)
        process = start(small, tmp_path)
        wait_for_epochs(process, tmp_path, before)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    code, output, errors = finish(small, tmp_path)
    assert code == 0, errors
    assert "Test error on digits" in output
    assert_same_results(tmp_path, undisturbed)


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_nothing(small: list[str], tmp_path: Path) -> None:
    arguments = [*small, "--repeats", "10"]  # long enough for twenty of them
    calm, kicked = tmp_path / "calm", tmp_path / "kicked"
    assert finish(arguments, calm)[0] == 0
    dice = random.Random(0)
    kills = 0
    for _ in range(20):
        process = start(arguments, kicked)
        try:
            process.communicate(timeout=dice.uniform(1, 6))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
    assert kills > 15  # the rest of the starts found everything done
    assert finish(arguments, kicked)[0] == 0
    assert_same_results(kicked, calm)


def limit_file_size() -> None:
    """What a full disk looks like to a process: no file may grow beyond 300 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


@pytest.mark.slow
def test_a_full_disk_is_named_and_with_room_again_it_goes_on(
    small: list[str], undisturbed: Path, tmp_path: Path
) -> None:
    # The first checkpoint is what does not fit any more; some epochs have been recorded before it.
    code, _, errors = finish(small, tmp_path, preexec_fn=limit_file_size)
    assert code == 1
    (message,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert "records.sqlite cannot be written" in message
    assert "make room" in message
    assert "Traceback" not in errors
    assert recorded_epochs(tmp_path) > 0
    assert finish(small, tmp_path)[0] == 0
    assert_same_results(tmp_path, undisturbed)


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(small: list[str], undisturbed: Path, tmp_path: Path) -> None:
    process = start(small, tmp_path)
    wait_for_epochs(process, tmp_path, 0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert "to go on from its last checkpoint: " in errors
    assert f"reproduce table2 --data digits --repeats 1 --out {tmp_path}" in errors
    assert "Traceback" not in errors
    assert finish(small, tmp_path)[0] == 0
    assert_same_results(tmp_path, undisturbed)


@pytest.mark.slow
def test_a_second_process_is_turned_away_and_disturbs_nothing(
    small: list[str], undisturbed: Path, tmp_path: Path
) -> None:
    first = start(small, tmp_path)
    wait_for_epochs(first, tmp_path, 0)
    first.send_signal(signal.SIGSTOP)  # or it would be done before the second has started
    code, _, errors = finish(small, tmp_path)
    first.send_signal(signal.SIGCONT)
    assert code == 1
    assert f"in use by process {first.pid}" in errors
    assert first.wait() == 0
    first.communicate()
    assert_same_results(tmp_path, undisturbed)

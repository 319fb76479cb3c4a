"""Interruptions of the SegNet experiment change nothing."""

from pathlib import Path

import pytest

from tests.support.small_segnet import EPOCHS, carry_out
from tests.support.written import everything, set_checkpoints


def interrupted(path: Path, patience: int) -> bool:
    try:
        watcher = carry_out(path, patience=patience)
    except KeyboardInterrupt:
        return True
    assert watcher.seen == watcher.expected
    return False


@pytest.mark.slow
def test_interrupted_after_every_epoch_the_records_are_the_same(
    undisturbed_scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_checkpoints(monkeypatch, 0.0)
    path = tmp_path / "records.sqlite"
    interruptions = 0
    while interrupted(path, patience=1):
        interruptions += 1
    assert interruptions == EPOCHS
    assert everything(path) == everything(undisturbed_scenes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "patience", [17, *[pytest.param(k, marks=pytest.mark.slow) for k in (3, 12, 26, EPOCHS)]]
)
def test_without_checkpoints_an_interrupted_run_starts_again_and_the_records_are_the_same(
    undisturbed_scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: int
) -> None:
    set_checkpoints(monkeypatch, 1e9)
    path = tmp_path / "records.sqlite"
    assert interrupted(path, patience)
    assert not interrupted(path, 10**9)
    assert everything(path) == everything(undisturbed_scenes)


def test_what_is_finished_is_not_trained_again(undisturbed_scenes: Path) -> None:
    before = everything(undisturbed_scenes)
    watcher = carry_out(undisturbed_scenes, patience=1)
    assert watcher.seen == (0, 0)
    assert everything(undisturbed_scenes) == before

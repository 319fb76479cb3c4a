"""Records of a small SegNet experiment, carried out without disturbance."""

from pathlib import Path

import pytest

from tests.support.small_segnet import carry_out


@pytest.fixture(scope="session")
def undisturbed_scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "records.sqlite"
    watcher = carry_out(path)
    assert watcher.seen == watcher.expected
    return path

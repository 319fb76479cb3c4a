from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.paper.records.reading import read_experiment, reading
from symoptim.paper.records.store import Records


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"no records at .*none.sqlite"), reading(tmp_path / "none.sqlite"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    path.write_bytes(b"nonsense" * 1000)
    with pytest.raises(RecordsError, match=r"records.sqlite is damaged, or no records file"), reading(path):
        pass


def test_a_file_without_an_experiment_says_so(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Records(path, torch="2", device="cpu"):
        pass
    with reading(path) as connection:
        assert read_experiment(connection) is None

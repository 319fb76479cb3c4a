from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.support.files import write_files


def test_files_are_written_whole_and_nothing_else(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "new" / "folder", {"a.md": "ä", "b.csv": "1"})
    assert [path.read_text(encoding="utf-8") for path in paths] == ["ä", "1"]
    assert sorted(path.name for path in paths[0].parent.iterdir()) == ["a.md", "b.csv"]


def test_a_file_that_cannot_be_written_is_named_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "taken.md").mkdir()
    with pytest.raises(RecordsError, match=r"taken.md cannot be written \(.*\)"):
        write_files(tmp_path, {"taken.md": "text"})
    assert [path.name for path in tmp_path.iterdir()] == ["taken.md"]


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordsError, match="file is no folder, or below a file"):
        write_files(tmp_path / "file", {"a.md": "text"})

import subprocess
import sys
from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.support.lock import Lock

HOLD = """
import sys, time
from pathlib import Path
from symoptim.support.lock import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "records.sqlite")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_told_who_holds_the_file(holder, tmp_path: Path) -> None:
    with pytest.raises(
        RecordsError, match=rf"in use by process {holder.pid} on .* since 20.*choose another --out"
    ):
        Lock(tmp_path / "records.sqlite")


def test_a_killed_process_holds_nothing(holder, tmp_path: Path) -> None:
    holder.kill()
    holder.wait()
    Lock(tmp_path / "records.sqlite").release()


def test_a_holder_whose_name_cannot_be_read_still_holds(holder, tmp_path: Path) -> None:
    (tmp_path / ".records.sqlite.holder").write_text('{"proc')
    with pytest.raises(RecordsError, match="in use by another process"):
        Lock(tmp_path / "records.sqlite")


def test_a_lock_that_cannot_be_signed_is_not_held(tmp_path: Path) -> None:
    (tmp_path / ".records.sqlite.part").mkdir()
    with pytest.raises(OSError, match="directory"):
        Lock(tmp_path / "records.sqlite")
    (tmp_path / ".records.sqlite.part").rmdir()
    Lock(tmp_path / "records.sqlite").release()


def test_released_is_free_again(tmp_path: Path) -> None:
    for _ in range(2):
        lock = Lock(tmp_path / "records.sqlite")
        lock.release()
    assert not (tmp_path / ".records.sqlite.holder").exists()

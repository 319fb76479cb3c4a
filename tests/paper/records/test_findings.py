import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from symoptim.paper.records.database import Records
from symoptim.paper.records.findings import (
    Example,
    Finding,
    read_confusions,
    read_examples,
    read_pictures,
    write_examples,
)
from symoptim.paper.records.runs import (
    Ending,
    Epoch,
    RunRow,
    have_ended,
    read_runs,
    reading,
    resume,
    write_epoch,
)

EXAMPLES = [Example("b", b"\xff\xd8 image of b", b"truth of b"), Example("a", b"image of a", b"truth of a")]
FINDING = Finding(
    "one", 12.5, {"train": [[5, 1], [0, 9]], "test": [[1, 2], [3, 4]]}, {"a": b"\x00\x01", "b": b""}
)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    with Records(tmp_path / "records.sqlite", torch="2.0", device="cpu") as records:
        records.begin("segnet", {})
        with records.writing() as connection:
            write_examples(connection, EXAMPLES)
        for name in ("one", "two"):
            resume(records, name, [RunRow(name, {"phase": "full"}, {})])
        yield records


def end(records: Records, finding: Finding) -> None:
    row = Epoch(1, 0.1, 1.0, 0.2, 0.3, math.nan)
    write_epoch(
        records, finding.run, {finding.run: row}, [Ending(finding.run, 1, "enough", False)], None, [finding]
    )


def test_what_is_written_is_read_back(records: Records) -> None:
    end(records, FINDING)
    other = Finding("two", 1.0, {"test": [[0, 0], [0, 7]]}, {"a": b"other"})
    end(records, other)
    with reading(records.path) as connection:
        assert read_confusions(connection, "train") == {"one": [[5, 1], [0, 9]]}
        assert read_confusions(connection, "test") == {"one": [[1, 2], [3, 4]], "two": [[0, 0], [0, 7]]}
        assert read_confusions(connection, "validation") == {}
        assert read_pictures(connection, "one") == {"a": b"\x00\x01", "b": b""}
        assert read_pictures(connection, "two") == {"a": b"other"}
        assert read_pictures(connection, "three") == {}
        assert [run.seconds for run in read_runs(connection, "full")] == [12.5, 1.0]


def test_examples_come_back_in_their_order_and_those_that_are_there_stay(records: Records) -> None:
    with records.writing() as connection:
        write_examples(connection, [Example("a", b"changed", b"changed"), Example("0", b"new", b"new")])
    assert read_examples(records.connection) == [*EXAMPLES, Example("0", b"new", b"new")]


def test_a_run_without_findings_has_no_seconds(records: Records) -> None:
    row = Epoch(1, 0.1, 1.0, 0.2, 0.3, math.nan)
    write_epoch(records, "one", {"one": row}, [Ending("one", 1, "enough", False)], None)
    assert [run.seconds for run in read_runs(records.connection, "full")] == [None, None]
    assert read_confusions(records.connection, "test") == {}


def test_findings_are_recorded_with_the_ending_or_not_at_all(records: Records) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        end(records, FINDING._replace(pictures={"nobody knows it": b""}))
    assert not have_ended(records, ["one"])
    one, _ = read_runs(records.connection, "full")
    assert (one.seconds, one.curve) == (None, ())
    assert read_confusions(records.connection, "test") == {}
    end(records, FINDING)
    assert have_ended(records, ["one"])


def test_what_was_found_of_a_run_that_has_to_end_again_is_forgotten(records: Records) -> None:
    resume(records, "both", [RunRow(name, {"phase": "both"}, {}) for name in ("a", "b")])
    rows = {name: Epoch(1, 0.1, 1.0, 0.2, 0.3, math.nan) for name in ("a", "b")}
    write_epoch(records, "both", rows, [], b"after 1")
    finding = FINDING._replace(run="a", pictures={})
    again = Epoch(2, 0.1, 1.0, 0.2, 0.3, math.nan)
    for _ in range(2):  # killed after the first time, it goes back to the checkpoint
        write_epoch(records, "both", {"a": again}, [Ending("a", 2, "enough", False)], None, [finding])
        assert read_confusions(records.connection, "test")["a"]
        assert resume(records, "both", []) == b"after 1"
        assert "a" not in read_confusions(records.connection, "test")
        assert read_runs(records.connection, "both")[0].seconds is None

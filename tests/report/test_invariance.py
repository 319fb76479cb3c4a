import csv
import io
from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.report.invariance import Pair, as_csv, draw

PAIRS = [
    Pair("arch1", "b-sgd", (2.0, 1.0), (2.0, 1.5)),
    Pair("arch2", "b-sgd", (2.0, 1.0), (2.0, 0.5)),
    Pair("arch2", "sm", (2.0, 1.0), (2.0, 1.0)),
]


def test_csv_has_the_gap_of_every_epoch() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(PAIRS))))
    assert [(row["architecture"], row["update"], row["epoch"], row["relative_gap"]) for row in rows] == [
        ("arch1", "b-sgd", "1", "0.0"),
        ("arch1", "b-sgd", "2", "0.5"),
        ("arch2", "b-sgd", "1", "0.0"),
        ("arch2", "b-sgd", "2", "0.5"),
        ("arch2", "sm", "1", "0.0"),
        ("arch2", "sm", "2", "0.0"),
    ]


def test_the_picture_is_not_a_blank_sheet(tmp_path: Path) -> None:
    pixels = pytest.importorskip("matplotlib.image")
    path = tmp_path / "new" / "picture.png"
    draw(PAIRS, path, caption="words")
    assert pixels.imread(path).std() > 0.05


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordsError, match=r"picture.png cannot be written"):
        draw(PAIRS, tmp_path / "file" / "picture.png", caption="words")

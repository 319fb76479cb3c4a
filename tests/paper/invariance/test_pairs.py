import csv
import io

from symoptim.paper.invariance.pairs import Pair, from_csv, to_csv

PAIRS = [
    Pair("arch1", "b-sgd", (2.0, 1.0), (2.0, 1.5)),
    Pair("arch2", "b-sgd", (2.0, 1.0), (2.0, 0.5)),
    Pair("arch2", "sm", (2.0, 1 / 3), (2.0, 1 / 3)),
]


def test_csv_has_the_gap_of_every_epoch() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(PAIRS))))
    assert [(row["architecture"], row["update"], row["epoch"], row["relative_gap"]) for row in rows] == [
        ("arch1", "b-sgd", "1", "0.0"),
        ("arch1", "b-sgd", "2", "0.5"),
        ("arch2", "b-sgd", "1", "0.0"),
        ("arch2", "b-sgd", "2", "0.5"),
        ("arch2", "sm", "1", "0.0"),
        ("arch2", "sm", "2", "0.0"),
    ]


def test_what_is_written_is_read_back_to_the_last_digit() -> None:
    assert from_csv(to_csv(PAIRS)) == PAIRS

from pathlib import Path
from typing import Any

import pytest

from symoptim.bench.records import Step, only
from symoptim.bench.tables import markdown, page_beside, places, tables, write_page
from symoptim.errors import RecordsError

SESSION = {"session": "1", "machine": "m", "device": "cpu", "threads": 1, "torch": "2.13", "code": "c"}


def a_step(contestant: str, seconds: float | None, momentum: float = 0.0, **more: Any) -> Step:
    line: dict[str, Any] = {
        "case": "tiny",
        "case_title": "tiny",
        "dtype": "float32",
        "momentum": momentum,
        "contestant": contestant,
        "title": contestant.upper(),
        "bytes": 400,
    }
    if seconds is not None:
        line |= {
            "seconds": {"p20": 0.9 * seconds, "p50": seconds, "p80": 1.2 * seconds},
            "floor": 1e-3,
            "clock": "process time",
            "state_bytes": 400,
            "temporary_bytes": 100,
            "allocations": 7,
        }
    return Step(session=SESSION, line=line | more, reference=4e-3 if momentum else 2e-3)


STEPS = [
    a_step("sgd-fused", 2e-3),
    a_step("un-fused", 3e-3),
    a_step("geoopt", None, missing="not installed: pip install geoopt"),
    a_step("sgd-fused", 4e-3, 0.9),
    a_step("un-fused", 4.4e-3, 0.9),
]


def test_ratios_are_to_fused_sgd_of_the_same_momentum() -> None:
    assert [step.ratio for step in STEPS] == [1.0, 1.5, None, 1.0, pytest.approx(1.1)]


def test_tables_have_a_floor_figures_and_who_is_missing() -> None:
    without, with_momentum, memory = tables(STEPS)
    assert without.rows == [["floor", "1"], ["SGD-FUSED", "2 (1.00; 2.0)"], ["UN-FUSED", "3 (1.50; 3.0)"]]
    assert with_momentum.rows[2] == ["UN-FUSED", "4.4 (1.10; 4.4)"]
    assert memory.rows[0] == ["SGD-FUSED", "1.00", "0.25", "7"]
    assert memory.notes == ["GEOOPT: not installed: pip install geoopt"]
    assert "| UN-FUSED | 3 (1.50; 3.0) |" in markdown(without)


def test_who_did_not_take_turns_with_the_sgd_that_is_shown_is_marked() -> None:
    other = Step(session={**SESSION, "session": "2"}, line=STEPS[1].line, reference=1e-3)
    (table, *_) = tables([STEPS[0], other])
    assert table.rows[1:] == [["SGD-FUSED", "2 (1.00; 2.0)"], ["UN-FUSED", "3 (3.00; 3.0)*"]]
    assert table.notes == ["*: of another run, a multiple of its own fused SGD and floor"]
    assert tables(STEPS)[0].notes == []


def test_steps_far_below_the_floor_are_pointed_at() -> None:
    *_, memory = tables([a_step("sgd-fused", 9e-4), a_step("sgd-fused", 7e-4, 0.9)])
    (note,) = memory.notes
    assert note.startswith("tiny, momentum 0.9: steps far below the floor")


def test_waits_are_shown_where_there_is_a_device() -> None:
    device = {"synchronizations": 161, "host": {"p50": 0.5}, "device": {"p50": 0.25}}
    alone = Step(session=SESSION, line=a_step("sgdp", 1.0, **device).line)
    assert alone.ratio is None
    times, shares, memory = tables([alone])
    assert times.rows[1] == ["SGDP", "1,000 (-; 1000.0)"]
    assert shares.rows == [["SGDP", "500, 250"]]
    assert memory.header[-1] == "waits"
    assert memory.rows[0][-1] == "161"


def test_the_share_of_a_training_step_is_shown_where_it_was_timed() -> None:
    timed = [a_step("sgd-fused", 1e-3, passes=9e-3), a_step("un-fused", 3e-3, passes=9e-3)]
    _, training, _ = tables(timed)
    assert training.rows == [["SGD-FUSED", "tiny", "9", "10.0%"], ["UN-FUSED", "tiny", "9", "25.0%"]]
    failing = [a_step("sgd-fused", 1e-3, no_passes="forward and backward fail")]
    assert tables(failing)[-1].notes == ["forward and backward fail"]


def test_places_are_kept_apart(tmp_path: Path) -> None:
    elsewhere = [Step(session={**SESSION, "threads": 2}, line=step.line) for step in STEPS]
    both = [*STEPS, *elsewhere]
    assert [len(mine) for mine in places(both).values()] == [5, 5]
    (page,) = write_page(both, tmp_path / "speed.md")
    assert page.read_text().count("## m, torch 2.13, float32, process time") == 2


def test_a_part_can_be_chosen() -> None:
    assert only(STEPS, ["tiny"], ["geoopt"]) == [STEPS[0], STEPS[2], STEPS[3]]  # and fused SGD
    assert only(STEPS, ["matrix"], None) == []


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    other = tmp_path / "mine.md"
    other.write_text("my own notes")
    with pytest.raises(RecordsError, match=r"mine.md has no tables of symoptim bench"):
        page_beside(tmp_path / "mine.jsonl")
    assert other.read_text() == "my own notes"


def test_tables_of_an_earlier_run_are_replaced(tmp_path: Path) -> None:
    write_page([a_step("sgd-fused", 1e-3)], tmp_path / "mine.md")
    page = page_beside(tmp_path / "mine.jsonl")
    assert write_page([a_step("sgd-fused", 2e-3)], page) == [tmp_path / "mine.md"]
    assert "| SGD-FUSED | 2 (" in page.read_text()


def test_records_cannot_have_the_name_of_a_table(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"say .*mine\.jsonl"):
        page_beside(tmp_path / "mine.md")

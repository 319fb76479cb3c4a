"""A small case from end to end: figures, refusals, absences, and nothing twice."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from symoptim.bench import run as module
from symoptim.bench.cases import Case
from symoptim.bench.measure import Budget
from symoptim.bench.optimizers import CONTESTANTS, Contestant
from symoptim.bench.records import Journal, read_steps
from symoptim.bench.run import Plan, carry_out, session_of
from tests.support.wrong import ABSENT, RAISING, TIRING, WRONG

CPU = torch.device("cpu")
NAMES = ("sgd-fused", "adamw-fused", "un-reference", "full-reference")
EVERYBODY = [*(CONTESTANTS[name] for name in NAMES), WRONG, RAISING, TIRING, ABSENT]


class Counter:
    """Adds up progress."""

    def __init__(self) -> None:
        self.expected = self.finished = 0.0

    def expect(self, amount: float) -> None:
        self.expected += amount

    def done(self, amount: float, words: str) -> None:
        assert words
        self.finished += amount


def plan_of(
    case: Callable[[], Case], contestants: list[Contestant], momenta: tuple[float, ...] = (0.0, 0.9)
) -> Plan:
    budget = Budget(turns=6, seconds=60)
    return Plan(
        cases=(case(),),
        contestants=contestants,
        momenta=momenta,
        dtypes=("float32",),
        device=CPU,
        budget=budget,
    )


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_everything_is_recorded_and_not_measured_again(tmp_path: Path, small: Callable[[], Case]) -> None:
    path, counter = tmp_path / "folder" / "bench.jsonl", Counter()
    carry_out(plan_of(small, EVERYBODY), Journal(path, session_of(CPU)), counter)
    assert counter.finished == pytest.approx(counter.expected)
    session, *lines = lines_of(path)
    assert session.keys() >= {"commit", "code", "packages", "machine", "threads", "command", "torch"}
    assert len(lines) == 2 * len(EVERYBODY) - 1  # AdamW has no place without momentum
    by = {(line["contestant"], line["momentum"]): line for line in lines}

    for name in NAMES:
        line = by[name, 0.9]
        assert line["turns"] == 6
        assert 0 < line["seconds"]["p20"] <= line["seconds"]["p50"] <= line["seconds"]["p80"]
        assert line["gate"] < 1e-5
        assert line["clock"] == "process time"
        assert line["floor"] == pytest.approx(line["elements"] * 20 / line["bandwidth"])
    assert by["sgd-fused", 0.9]["state_bytes"] == by["sgd-fused", 0.9]["bytes"]
    assert by["sgd-fused", 0.9]["temporary_bytes"] == by["sgd-fused", 0.9]["allocations"] == 0
    assert by["un-reference", 0.0]["temporary_bytes"] > 0
    assert by["un-reference", 0.0]["state_bytes"] == 0

    for momentum in (0.0, 0.9):
        assert by["wrong", momentum]["refused"] == "differs from its float64 reference by 1.0e-03 of its step"
        assert by["raising", momentum]["refused"] == "RuntimeError: no kernel for that"
        assert by["tiring", momentum]["refused"] == "MemoryError: out of it"
        assert by["absent", momentum]["missing"] == "not installed: pip install no-such-package"
        assert not any("seconds" in by[name, momentum] for name in ("wrong", "raising", "tiring", "absent"))

    before, counter = path.read_text(), Counter()
    carry_out(plan_of(small, EVERYBODY), Journal(path, session_of(CPU)), counter)
    assert path.read_text() == before
    assert counter.expected == counter.finished == 0


def test_other_code_and_other_contestants_are_measured(tmp_path: Path, small: Callable[[], Case]) -> None:
    path, mine, session = tmp_path / "bench.jsonl", [CONTESTANTS["sgd-fused"]], session_of(CPU)
    for code in ("one", "another"):
        carry_out(plan_of(small, mine), Journal(path, {**session, "code": code}), Counter())
    assert sum(line["kind"] == "session" for line in lines_of(path)) == 2
    more = [*mine, CONTESTANTS["sgd-foreach"]]
    carry_out(plan_of(small, more), Journal(path, {**session, "code": "another"}), Counter())
    steps = read_steps([path])
    assert sum(step.line["contestant"] == "sgd-foreach" for step in steps) == 2
    assert len(steps) == len({step.key for step in steps})


def test_an_interrupted_run_keeps_what_is_done(
    tmp_path: Path, small: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bench.jsonl"
    mine = [CONTESTANTS["sgd-fused"]]

    class Impatient(Counter):
        def done(self, amount: float, words: str) -> None:
            super().done(amount, words)
            if "momentum 0.9" in words:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(plan_of(small, mine), Journal(path, session_of(CPU)), Impatient())
    assert [step.line["momentum"] for step in read_steps([path])] == [0.0]
    with path.open("a") as file:
        file.write('{"kind": "step", "sess')  # what a killed process leaves
    carry_out(plan_of(small, mine), Journal(path, session_of(CPU)), Counter())
    assert [step.line["momentum"] for step in read_steps([path])] == [0.0, 0.9]


def test_what_does_not_fit_the_memory_is_left_out_and_said(
    tmp_path: Path, small: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda _: 2**10)
    path = tmp_path / "bench.jsonl"
    carry_out(plan_of(small, [CONTESTANTS["sgd-fused"]], (0.0,)), Journal(path, session_of(CPU)), Counter())
    (step,) = read_steps([path])
    assert step.line["missing"].endswith("GiB are free")


def test_states_that_do_not_fit_together_are_made_anew(
    tmp_path: Path, small: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = small()
    monkeypatch.setattr("symoptim.bench.measure.free_bytes", lambda _: 6 * case.elements)
    path = tmp_path / "bench.jsonl"
    mine = [CONTESTANTS[name] for name in ("sgd-fused", "adamw-fused", "un-reference")]
    carry_out(plan_of(small, mine, (0.9,)), Journal(path, session_of(CPU)), Counter())
    by = {step.line["contestant"]: step.line for step in read_steps([path])}
    assert by["un-reference"]["turns"] == 12  # two in each of six rounds
    assert by["adamw-fused"]["refused"].endswith("GiB of state, more than is free")

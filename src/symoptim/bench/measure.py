"""Measure one case: all optimizers take turns in one process, on the same weights and gradients.

Timings are reported only for optimizers that match a float64 reference. Where the states of all fit the
memory together, every optimizer has one turn of the clock in every round until its share of the time is used
up: slow ones do not keep fast ones from being measured often. Where they do not fit, each is made anew for a
few steps, in two rounds at least.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from symoptim.bench.clock import Clock, Reading, Turn, quantiles
from symoptim.bench.correctness import error_of, passes
from symoptim.bench.memory import Footprint, footprint, free_bytes
from symoptim.bench.optimizers import Contestant, Setup, Stepper
from symoptim.bench.records import Line
from symoptim.bench.roofline import Copy, bytes_moved
from symoptim.bench.tensors import CaseTensors, first_line

RATE = 1e-12
"""So small that weights stay where they are, in the full metric too, whose scales can be large."""
WARM_UP = 2
"""Steps before any measurement: the first makes state, the second may record what others replay. Memory is
measured in the next, time after that."""
FEWEST = 3
"""Turns that are taken even if they take longer than asked for."""
SHORT_TURN = Turn(0, 2)
"""A turn where states do not fit together."""
LARGE = 2**26
"""Weights of so many bytes are worth collecting garbage for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """How many turns of each, and seconds of all."""

    turns: int
    seconds: float


@dataclass(kw_only=True, slots=True)
class Entry:
    """An optimizer that matches its reference, and what was measured of it."""

    contestant: Contestant
    error: float
    readings: list[Reading] = field(default_factory=list[Reading])
    footprint: Footprint | None = None
    stepper: Stepper | None = None
    spent: float = 0.0
    """Seconds of its turns; the first, in which it is made, is not counted."""
    failure: str = ""


@dataclass(kw_only=True, slots=True)
class Measurement:
    """All optimizers on one case with one momentum."""

    tensors: CaseTensors
    contestants: list[Contestant]
    momentum: float
    clock: Clock
    budget: Budget
    tick: Callable[[str], None] = lambda _: None
    """Called with a title after every check and every turn."""

    def run(self) -> list[Line]:
        """Check all, time those that match, and return a line for each: figures, or why there are none."""
        lines: dict[str, Line] = {}
        entries: list[Entry] = []
        for contestant in self.contestants:
            refusal, error = self._check(contestant)
            self.tick(contestant.title)
            if refusal or error is None:
                lines[contestant.name] = {"refused": refusal, "gate": error}
            else:
                entries.append(Entry(contestant=contestant, error=error))
        self.tensors.fill(unit=True, tangent=True)
        copy = Copy(self.tensors.device)
        self._take_turns(entries, copy)
        for entry in entries:
            lines[entry.contestant.name] = self._line(entry, copy)
        return [{**self._named(one), **lines[one.name]} for one in self.contestants]

    def _check(self, contestant: Contestant) -> tuple[str, float | None]:
        """Why a contestant is not timed (empty if it is), and its error."""
        needed = self._state_bytes(contestant)
        if needed > free_bytes(self.tensors.device):
            return f"needs {needed / 2**30:.1f} GiB of state, more than is free", None
        try:
            error = error_of(contestant, self.tensors, self.momentum)
        except Exception as raised:  # whatever an optimizer raises: the others go on
            return first_line(raised), None
        finally:
            self._free()
        matches = passes(error, self.tensors.dtype)
        return "" if matches else f"differs from its float64 reference by {error:.1e} of its step", error

    def _state_bytes(self, contestant: Contestant) -> float:
        """Bytes of state to be expected: in float32, and master copies of what is not."""
        masters = float(self.tensors.dtype.itemsize < torch.float32.itemsize)
        copies = float(self.momentum > 0) if contestant.copies is None else contestant.copies
        return (copies + masters) * 4 * self.tensors.case.elements

    def _take_turns(self, entries: list[Entry], copy: Copy) -> None:
        """Fill the entries with readings."""
        together = sum(self._state_bytes(entry.contestant) for entry in entries)
        stay = together < free_bytes(self.tensors.device) / 2
        share = self.budget.seconds / max(1, len(entries))
        for number in _rounds(self.budget, FEWEST if stay else 2):
            active = [one for one in entries if not one.failure and (not number or one.spent < share)]
            if not active:
                break
            copy.measure(self.clock)
            for entry in active:
                began, is_first = time.monotonic(), not entry.readings
                self._turn(entry, self.clock.turn if stay else SHORT_TURN)
                if entry.failure or not stay:
                    entry.stepper = None
                    self._free()
                entry.spent += 0.0 if is_first else time.monotonic() - began
                self.tick(entry.contestant.title)

    def _turn(self, entry: Entry, turn: Turn) -> None:
        """Time some steps; the optimizer is made and warmed up first if it is not there."""
        tensors = self.tensors
        try:
            if entry.stepper is None:
                setup = Setup(tensors=tensors, pairs=tensors.pairs, lr=RATE, momentum=self.momentum)
                entry.stepper = entry.contestant.make(setup)
                for _ in range(WARM_UP):
                    entry.stepper.step()
                entry.footprint = footprint(entry.stepper, tensors.device)
            readings = [self.clock.read(entry.stepper.step) for _ in range(sum(turn))]
            entry.readings += readings[turn.discarded :]
        except Exception as raised:  # out of memory, say: the others go on
            entry.failure = first_line(raised)

    def _free(self) -> None:
        """Give memory back where there is much of it."""
        if self.tensors.bytes > LARGE:
            gc.collect()
            if self.tensors.device.type == "cuda":
                torch.cuda.empty_cache()

    def _named(self, one: Contestant) -> Line:
        remark = {"remark": one.remark} if one.remark and self.momentum else {}
        return {"contestant": one.name, "title": one.title, **remark}

    def _line(self, entry: Entry, copy: Copy) -> Line:
        """All figures of an optimizer."""
        if entry.failure:
            return {"refused": entry.failure, "gate": entry.error}
        moved = bytes_moved(self.tensors.case.elements, self.tensors.dtype, momentum=self.momentum)
        figures: dict[str, Any] = {
            "seconds": quantiles([reading.seconds for reading in entry.readings]),
            "turns": len(entry.readings),
            "clock": self.clock.name,
            "gate": entry.error,
            "floor": moved / copy.bandwidth(),
            "bandwidth": copy.bandwidth(),
        }
        for name in ("host", "device"):
            values = [value for one in entry.readings if (value := getattr(one, name)) is not None]
            if values:
                figures[name] = quantiles(values)
        if entry.footprint is not None:
            figures |= {k: v for k, v in entry.footprint._asdict().items() if v is not None}
        return figures


def _rounds(budget: Budget, fewest: int) -> Iterator[int]:
    """Numbers of rounds; the first few are 0, as they are taken in any case."""
    fewest = min(fewest, budget.turns)
    yield from (0,) * fewest
    yield from range(1, max(1, budget.turns - fewest + 1))

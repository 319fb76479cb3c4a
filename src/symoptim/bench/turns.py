"""Measure one case: everybody takes turns in one process, on the same weights and gradients.

Nobody is timed who does not pass the gate. Where the states of all fit the memory together, everybody has one
turn of the clock in every round until his share of the time is used up: the slow do not keep the fast from
being measured often. Where they do not fit, everybody's is made anew for a few steps, in two rounds at least.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from symoptim.bench.clock import Clock, Reading, Turn, quantiles
from symoptim.bench.contestants import Asked, Contestant, Stepper, first_line
from symoptim.bench.floor import Copy, bytes_moved
from symoptim.bench.gate import gate, passes
from symoptim.bench.material import Material
from symoptim.bench.memory import Footprint, footprint, free_bytes

RATE = 1e-12
"""So small that weights stay where they are, in the full metric too, whose scales can be large."""
WARM_UP = 2
"""Steps that nothing is seen of: the first makes state, the second may record what others replay. Memory is
looked at in the next, time after that."""
FEWEST = 3
"""Turns that are taken even if they take longer than asked for."""
VISIT = Turn(0, 2)
"""A turn where states do not fit together."""

LARGE = 2**26
"""Weights of so many bytes are worth collecting garbage for."""

Line = dict[str, Any]
"""What is found out about a contestant, for the records."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How often, and how long in all."""

    turns: int
    seconds: float


@dataclass(kw_only=True, slots=True)
class Entry:
    """A contestant that passed its gate, and what was measured of it."""

    contestant: Contestant
    error: float
    readings: list[Reading] = field(default_factory=list[Reading])
    footprint: Footprint | None = None
    stepper: Stepper | None = None
    spent: float = 0.0
    """Seconds of its turns; the first, in which it is made, is not counted."""
    failure: str = ""


def measure(
    material: Material,
    contestants: list[Contestant],
    *,
    momentum: float,
    clock: Clock,
    pace: Pace,
    tick: Callable[[str], None] = lambda _: None,
) -> list[Line]:
    """Measure all contestants on a case.

    Args:
        material: weights and gradients, which are overwritten.
        contestants: who competes.
        momentum: momentum factor.
        clock: what with.
        pace: how often.
        tick: told who was just busy: once per gate, once per round.

    Returns:
        A line for everybody: figures, or why there are none.
    """
    lines: dict[str, Line] = {}
    entries: list[Entry] = []
    for contestant in contestants:
        refusal, error = _tried(contestant, material, momentum)
        tick(contestant.title)
        if refusal or error is None:
            lines[contestant.name] = {"refused": refusal, "gate": error}
        else:
            entries.append(Entry(contestant=contestant, error=error))
    material.fill(unit=True, tangent=True)
    copy = Copy(material.device)
    _take_turns(entries, material, momentum, clock, copy, pace, tick)
    for entry in entries:
        lines[entry.contestant.name] = _line(entry, material, momentum, clock, copy)
    return [{**_about(contestant, momentum), **lines[contestant.name]} for contestant in contestants]


def _tried(contestant: Contestant, material: Material, momentum: float) -> tuple[str, float | None]:
    """Why a contestant may not compete (empty if it may), and the error of its gate."""
    needed = _state(contestant, material, momentum)
    if needed > free_bytes(material.device):
        return f"needs {needed / 2**30:.1f} GiB of state, more than is free", None
    try:
        error = gate(contestant, material, momentum)
    except Exception as raised:  # whatever a rival raises: it is out, the others go on
        return first_line(raised), None
    finally:
        _tidy(material)
    return "" if passes(error, material.dtype) else f"gate: wrong by {error:.1e} of its step", error


def _state(contestant: Contestant, material: Material, momentum: float) -> float:
    """Bytes of state to be expected: in float32, and master copies of what is not."""
    masters = float(material.dtype.itemsize < torch.float32.itemsize)
    return (contestant.copies(momentum) + masters) * 4 * material.case.elements


def _take_turns(
    entries: list[Entry],
    material: Material,
    momentum: float,
    clock: Clock,
    copy: Copy,
    pace: Pace,
    tick: Callable[[str], None],
) -> None:
    """Fill the entries with readings."""
    together = sum(_state(entry.contestant, material, momentum) for entry in entries)
    stay = together < free_bytes(material.device) / 2
    share = pace.seconds / max(1, len(entries))
    for number in _rounds(pace, FEWEST if stay else 2):
        turn_of = [entry for entry in entries if not entry.failure and (not number or entry.spent < share)]
        if not turn_of:
            break
        copy.measure(clock)
        for entry in turn_of:
            began, is_first = time.monotonic(), not entry.readings
            _visit(entry, material, momentum, clock, clock.turn if stay else VISIT)
            if entry.failure or not stay:
                entry.stepper = None
                _tidy(material)
            entry.spent += 0.0 if is_first else time.monotonic() - began
            tick(entry.contestant.title)


def _rounds(pace: Pace, fewest: int) -> Iterator[int]:
    """Numbers of rounds; the first few are 0, as they are taken in any case."""
    fewest = min(fewest, pace.turns)
    yield from (0,) * fewest
    yield from range(1, max(1, pace.turns - fewest + 1))


def _visit(entry: Entry, material: Material, momentum: float, clock: Clock, turn: Turn) -> None:
    """Let a contestant step; it is made and warmed up if it is not there."""
    try:
        if entry.stepper is None:
            asked = Asked(material=material, members=material.members, rate=RATE, momentum=momentum)
            entry.stepper = entry.contestant.make(asked)
            for _ in range(WARM_UP):
                entry.stepper.step()
            entry.footprint = footprint(entry.stepper, material.device)
        readings = [clock.read(entry.stepper.step) for _ in range(sum(turn))]
        entry.readings += readings[turn.discarded :]
    except Exception as raised:  # out of memory, say: it is out, the others go on
        entry.failure = first_line(raised)


def _tidy(material: Material) -> None:
    """Give memory back that is worth the while."""
    if material.bytes > LARGE:
        gc.collect()
        if material.device.type == "cuda":
            torch.cuda.empty_cache()


def _about(contestant: Contestant, momentum: float) -> Line:
    words = {"contestant": contestant.name, "title": contestant.title}
    return {**words, "remark": contestant.remark} if contestant.remark and momentum else words


def _line(entry: Entry, material: Material, momentum: float, clock: Clock, copy: Copy) -> Line:
    """All figures of a contestant."""
    if entry.failure:
        return {"refused": entry.failure, "gate": entry.error}
    figures: Line = {
        "seconds": quantiles([reading.seconds for reading in entry.readings]),
        "turns": len(entry.readings),
        "clock": clock.name,
        "gate": entry.error,
        "floor": bytes_moved(material.case.elements, material.dtype, momentum=momentum) / copy.bandwidth(),
        "bandwidth": copy.bandwidth(),
    }
    for name in ("host", "device"):
        values = [value for reading in entry.readings if (value := getattr(reading, name)) is not None]
        if values:
            figures[name] = quantiles(values)
    if entry.footprint is not None:
        figures |= {k: v for k, v in entry.footprint._asdict().items() if v is not None}
    return figures

"""How long a step takes.

On the CPU with one thread it is process time, which a busy neighbor does not change much; with several it is
wall time, as process time counts the threads of a step that wait as if they worked. Threads of OpenMP that
spin while they wait slow each other down on a machine with few cores: set ``GOMP_SPINCOUNT=0`` there.

On CUDA it is the time between two events around the step, with the device idle before it: launches count.
Beside it are the time of the host alone, and the time between events while the device is kept busy until the
host has launched everything, as at the end of a long backward pass. A turn is a few steps in a row of which
the first do not count: the caches are those of the optimizer before it.

Before every step a buffer larger than any cache is overwritten, as the passes of a training step would do.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

FLUSHED = {"cpu": 2**26, "cuda": 2**28}
"""Bytes that are overwritten: 64 MiB, 256 MiB."""


class Reading(NamedTuple):
    """Seconds of one step; what the host spent, and what the device did alone, on CUDA only."""

    seconds: float
    host: float | None = None
    device: float | None = None


class Turn(NamedTuple):
    """Steps in a row, of one optimizer."""

    discarded: int
    counted: int


class Clock(Protocol):
    """Measures steps."""

    name: str
    turn: Turn

    def read(self, work: Callable[[], object]) -> Reading:
        """Time of a call."""
        ...


def _flush_buffer(device: torch.device) -> Tensor:
    return torch.zeros(FLUSHED[device.type] // 4, device=device)


class CpuClock:
    """Process time with one thread, wall time with several."""

    turn = Turn(0, 1)

    def __init__(self, threads: int) -> None:
        """Choose by number of threads."""
        self.name = "process time" if threads == 1 else f"wall time, {threads} threads"
        self.now = time.process_time if threads == 1 else time.perf_counter
        self.flushed = _flush_buffer(torch.device("cpu"))

    def read(self, work: Callable[[], object]) -> Reading:
        """Time of a call."""
        self.flushed.add_(1.0)
        began = self.now()
        work()
        return Reading(self.now() - began)


class CudaClock:
    """CUDA events, host time, and events behind work that keeps the device busy."""

    turn = Turn(2, 4)
    CYCLES = 2e9
    """Of a device in a second; more than there are, so that the wait is long enough."""

    def __init__(self, device: torch.device) -> None:
        """Measure on that device."""
        self.name = "CUDA events"
        self.device = device
        self.flushed = _flush_buffer(device)

    def read(self, work: Callable[[], object]) -> Reading:
        """Time of a call, taken twice."""
        with torch.cuda.device(self.device):
            return self._read(work)

    def _read(self, work: Callable[[], object]) -> Reading:
        self._rest()
        seconds, host = self._between(work)
        self._rest()
        # The only way to keep a device busy for a given time; there is no public name for it.
        cast("Any", torch.cuda)._sleep(int(self.CYCLES * (2 * host + 1e-4)))
        device, _ = self._between(work)
        return Reading(seconds, host, device)

    def _rest(self) -> None:
        self.flushed.add_(1.0)
        torch.cuda.synchronize(self.device)

    def _between(self, work: Callable[[], object]) -> tuple[float, float]:
        """Seconds between events around a call, and seconds of the host until it returned."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        began = time.perf_counter()
        work()
        host = time.perf_counter() - began
        end.record()
        torch.cuda.synchronize(self.device)
        return start.elapsed_time(end) / 1e3, host


def clock_for(device: torch.device) -> Clock:
    """The clock of a device."""
    return CudaClock(device) if device.type == "cuda" else CpuClock(torch.get_num_threads())


def quantiles(values: Sequence[float]) -> Mapping[str, float]:
    """Twentieth, fiftieth and eightieth percentile.

    >>> quantiles([3.0, 1.0, 2.0])
    {'p20': 1.4, 'p50': 2.0, 'p80': 2.6}
    """
    if len(values) == 1:
        return dict.fromkeys(("p20", "p50", "p80"), values[0])
    fifths = statistics.quantiles(values, n=5, method="inclusive")
    return {"p20": fifths[0], "p50": statistics.median(values), "p80": fifths[3]}

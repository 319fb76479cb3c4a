"""Memory of a step, and how often the host waits for the device.

The state is what an optimizer keeps between steps. What a step needs on top, and gives back, is the largest
sum of the tensors that are alive during it: on CUDA the allocator's own peak, on the CPU the peak that
torch's profiler records. Memory that a kernel takes from the system without torch is not counted.
"""

import gc
import os
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from symoptim.bench.optimizers import Stepper

CPU = ProfilerActivity.CPU


class Footprint(NamedTuple):
    """What a step after the first few takes besides time."""

    state_bytes: int
    temporary_bytes: int
    allocations: int
    """Tensors made during the step."""
    synchronizations: int | None
    """Times the host waited for the device; None where there is none."""


def free_bytes(device: torch.device) -> int:
    """Memory that is available."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return sys.maxsize  # not Linux: unknown


def footprint(stepper: Stepper, device: torch.device) -> Footprint:
    """Memory of a step, measured by taking one."""
    tensors = [value for one in stepper.state.values() for value in one.values() if isinstance(value, Tensor)]
    state = sum(tensor.nbytes for tensor in tensors)
    if device.type == "cuda":
        return Footprint(state, *_on_cuda(stepper.step, device))
    return Footprint(state, *_on_cpu(stepper.step), None)


def _on_cuda(work: Callable[[], object], device: torch.device) -> tuple[int, int, int]:
    gc.collect()  # garbage that went away in the middle of a step would hide what the step takes
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_stats(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    after = torch.cuda.memory_stats(device)
    peak = after["allocated_bytes.all.peak"] - before["allocated_bytes.all.current"]
    made = after["allocation.all.allocated"] - before["allocation.all.allocated"]
    return peak, made, _synchronizations(work, device)


def _synchronizations(work: Callable[[], object], device: torch.device) -> int:
    """Times a step waits for the device, as torch's own debug mode counts them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize(device)
    # Not just the word: torch warns, once, that it may not find all synchronizing operations.
    return sum("called a synchronizing" in str(one.message) for one in caught)


def _on_cpu(work: Callable[[], object]) -> tuple[int, int]:
    """Peak and number of the allocations the profiler records."""
    with _silenced(), torch.profiler.profile(activities=[CPU], profile_memory=True) as profile:
        work()
    # Allocations in their order are to be had here only; the public tables have sums.
    events: Any = profile.profiler.kineto_results.events()  # pyright: ignore
    sizes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    ordered = [size for _, size in sorted(sizes, key=lambda one: one[0])]
    return max(accumulate(ordered, initial=0)), sum(size > 0 for size in ordered)


@contextmanager
def _silenced() -> Generator[None]:
    """Silence the error stream: torch's profiler writes there that it starts and stops."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)

"""Devices by name, and the precision they compute with: global switches that are restored afterwards."""

import platform
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch

from symoptim.errors import OptionError


def device_named(name: str) -> torch.device:
    """A device by name; ``auto`` is the first CUDA device, or the CPU where there is none.

    Args:
        name: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.

    Returns:
        The device.

    Raises:
        OptionError: it is not on this machine.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("only CPUs and CUDA devices are known to train right")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        cause = str(error).splitlines()[0]
        raise OptionError(f"device '{name}' cannot be used here ({cause}); try auto or cpu") from error
    return device


def describe_device(device: torch.device) -> str:
    """What decides the last bits of a result: the kind of GPU, or of CPU and the number of its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} thread(s)"


def _processor() -> str:
    """Name of the CPU, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _without_tf32(**changes: bool) -> AbstractContextManager[None]:
    """CuDNN's present settings without TF32, and with these changes."""
    cudnn: Any = torch.backends.cudnn
    kept = {"enabled": cudnn.enabled, "benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
    return cudnn.flags(**kept | {"allow_tf32": False} | changes)


@contextmanager
def tuned_convolutions() -> Generator[None]:
    """Let cuDNN time its convolutions and keep the fastest; the choice decides the last bits."""
    with _without_tf32(benchmark=True):
        yield


@contextmanager
def full_float32() -> Generator[None]:
    """No TF32: float32 products are float32 products on every device."""
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # a precision set for one backend alone: torch refuses to name that of all
        with _ieee(torch.backends.cuda.matmul), _without_tf32():
            yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        with _without_tf32():
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


@contextmanager
def _ieee(backend: Any) -> Generator[None]:
    before = backend.fp32_precision
    backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        backend.fp32_precision = before

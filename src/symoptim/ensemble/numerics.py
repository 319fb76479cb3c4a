"""Seeds, devices and precision. Of global switches the engine touches these only, and it puts them back."""

import hashlib
import platform
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from symoptim.errors import OptionError
from symoptim.kernels.dispatch import why_not_here

MOST_THREADS = 4  # with more, torch's own loops, which share out their work, are as fast as compiled ones


def derive_seed(*words: int | str) -> int:
    """A seed for a purpose, the same on every machine; other words give an unrelated one.

    >>> derive_seed(0, "weights") == derive_seed(0, "weights") != derive_seed(1, "weights")
    True
    """
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # 63 bits: it has to fit a signed integer


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


def compiled_for(tensor: Tensor) -> Any:
    """The kernels of :mod:`.compiled`, where they can be used for that tensor; None elsewhere."""
    if tensor.device.type != "cpu" or torch.get_num_threads() > MOST_THREADS:
        return None
    return None if why_not_here(tensor.device, tensor.dtype) else import_module("symoptim.ensemble.compiled")


def describe_device(device: torch.device) -> str:
    """What decides the last bits of a result: the kind of GPU, or of CPU and the number of its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} thread(s)"


def _processor() -> str:
    """Name of the CPU, as well as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Draw from torch's own CPU generator as after ``manual_seed(seed)``; its state is restored after."""
    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(state)


def _without_tf32(**changes: Any) -> AbstractContextManager[None]:
    """The settings of cuDNN as they are, but for TF32 and what is said."""
    cudnn: Any = torch.backends.cudnn
    kept = {"enabled": cudnn.enabled, "benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
    return cudnn.flags(**kept | {"allow_tf32": False} | changes)


@contextmanager
def tuned_convolutions() -> Generator[None]:
    """Let cuDNN try its convolutions out and keep the fastest; which one that is decides the last bits."""
    with _without_tf32(benchmark=True):
        yield


@contextmanager
def full_float32() -> Generator[None]:
    """No TF32: float32 products are float32 products on every device."""
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # who has set the precision of a backend by its own name may not ask for that of all
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

"""Which kernels there are on this machine, for which tensors."""

import functools
import importlib
import importlib.util
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from symoptim.kernels.memory_layout import FilterLayout

Hyperparameters = list[tuple[float, ...]]


class Launcher(Protocol):
    """Steps the tensors of a table."""

    def set_gradient_pointers(self, gradients: Sequence[int]) -> None:
        """Use gradients at these addresses, one per row of the table."""
        ...

    def launch(
        self, numbers: Hyperparameters, rates: Sequence[Tensor | None], scaling: tuple[Tensor, Tensor] | None
    ) -> None:
        """Step all tensors.

        Args:
            numbers: of :mod:`symoptim.kernels.descriptor`, a row per group.
            rates: by group, rates that are on a device.
            scaling: what a loss was multiplied by, and whether that was too much; on a device.
        """
        ...


WITHOUT_NUMBA = "the kernels for CPUs are compiled by numba, which is not installed: pip install '.[fast]'"


@functools.cache
def _missing(package: str) -> bool:
    return importlib.util.find_spec(package) is None


@functools.cache
def _failing(package: str) -> str:
    """Why a package that is installed cannot be imported, if so: numba refuses some versions of NumPy."""
    try:
        importlib.import_module(package)
    except Exception as error:  # of whatever it imports
        return f"{package}, which compiles the kernels, cannot be imported ({type(error).__name__}: {error})"
    return ""


def numba_missing_reason() -> str:
    """Why there are no kernels for CPUs, if there are none."""
    return WITHOUT_NUMBA if _missing("numba") else _failing("numba")


def unsupported_device_reason(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why parameters of that precision cannot be stepped by a kernel on that device, or None if they can.

    >>> unsupported_device_reason(torch.device("meta"), torch.float32)
    'there are kernels for CPUs and CUDA devices only, not for meta'
    """
    if device.type == "cpu":
        if numba_missing_reason():
            return numba_missing_reason()
        if dtype not in (torch.float32, torch.float64):
            return f"the kernels for CPUs take float32 and float64, not {dtype}"
        return None
    if device.type == "cuda":
        if _missing("triton"):
            return "the kernels for CUDA devices are compiled by Triton, which is not installed"
        if _failing("triton"):
            return _failing("triton")
        if dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            return f"the kernels for CUDA devices do not take {dtype}"
        return None
    return f"there are kernels for CPUs and CUDA devices only, not for {device.type}"


def kernel_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Precision of what kernels step for parameters of that precision: on CPUs, of master copies.

    >>> kernel_dtype(torch.device("cpu"), torch.bfloat16), kernel_dtype(torch.device("cuda"), torch.bfloat16)
    (torch.float32, torch.bfloat16)
    """
    is_short = dtype in (torch.bfloat16, torch.float16)
    return torch.float32 if device.type == "cpu" and is_short else dtype


ACROSS = 128  # neighboring entries of a filter that a program on a CUDA device has


def unsupported_layout_reason(device: torch.device, layout: FilterLayout) -> str | None:
    """Why filters that lie like this cannot be stepped by a kernel on that device, or None if they can."""
    if device.type == "cuda" and layout.outer > 1 and layout.inner > ACROSS:
        return f"its filters lie in {layout.outer} pieces of {layout.inner} entries, more than {ACROSS}"
    return None


def launcher(device: torch.device, dtype: torch.dtype, table: Tensor) -> Launcher:
    """The kernels for parameters of that precision on that device; they are compiled on first use."""
    with torch.device("cpu"):  # where work is shared out, whatever the default device is
        if device.type == "cpu":
            from symoptim.kernels.numba.launcher import CpuLauncher

            return CpuLauncher(table, dtype)
        from symoptim.kernels.triton.launcher import CudaLauncher

        return CudaLauncher(table, device, dtype)

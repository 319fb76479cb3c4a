"""A faster way through the paper's networks: closed form, numba on CPUs, Triton on CUDA devices."""

from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from symoptim.kernels.backend import unsupported_device_reason

MAX_THREADS = 4  # with more, torch's own loops, which are multithreaded, are as fast as compiled ones


def numba_layers_for(tensor: Tensor) -> ModuleType | None:
    """The module :mod:`.numba_layers`, where its kernels can be used for that tensor; None elsewhere."""
    if tensor.device.type != "cpu" or torch.get_num_threads() > MAX_THREADS:
        return None
    if unsupported_device_reason(tensor.device, tensor.dtype):
        return None
    return import_module("symoptim.ensemble.fast.numba_layers")

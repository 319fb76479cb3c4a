"""Tensors of the host that kernels read on a device, copied there without waiting, and safe to capture.

A copy that is recorded into a CUDA graph is made when the graph is replayed, not now: only the graph may rely
on it, and both ends of it have to stay for as long as the graph may be replayed, which nobody is told.
"""

import torch
from torch import Tensor

_captured: list[Tensor] = []


def copied(host: Tensor, device: torch.device) -> Tensor:
    """A copy on a device; the host does not wait for it."""
    pinned = host.pin_memory()
    there = torch.empty(host.shape, dtype=host.dtype, device=device).copy_(pinned, non_blocking=True)
    if torch.cuda.is_current_stream_capturing():
        _captured.extend((pinned, there))
    return there


class Mirror:
    """A tensor of the host with its copy on a device."""

    def __init__(self, host: Tensor, device: torch.device) -> None:
        """Remember the tensor, which must not change; nothing is copied yet."""
        self.host, self.device = host, device
        self.there: Tensor | None = None

    def __len__(self) -> int:
        return len(self.host)

    def get(self) -> Tensor:
        """The copy, made where it is needed for the first time."""
        if self.there is not None:
            return self.there
        there = copied(self.host, self.device)
        if not torch.cuda.is_current_stream_capturing():
            self.there = there
        return there

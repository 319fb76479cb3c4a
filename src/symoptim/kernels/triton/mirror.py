"""Tensors of the host that kernels read on a device, copied there without waiting, and safe to capture.

A copy that is recorded into a CUDA graph is made when the graph is replayed, not now: only the graph may rely
on it, and both ends of it have to stay for as long as the graph may be replayed, which nobody is told.
"""

import torch
from torch import Tensor

_captured: list[object] = []


def keep(owner: object) -> None:
    """Keep an object, whose memory a graph that is being captured will use, for good."""
    if not any(one is owner for one in _captured):
        _captured.append(owner)


def copied(host: Tensor, device: torch.device) -> Tensor:
    """A copy on a device; the host does not wait for it."""
    pinned = host.pin_memory()
    there = torch.empty(host.shape, dtype=host.dtype, device=device).copy_(pinned, non_blocking=True)
    if torch.cuda.is_current_stream_capturing():
        _captured.extend((pinned, there))
    return there


class Mirror:
    """A tensor of the host that stays as it is, with its copy on a device."""

    def __init__(self, host: Tensor, device: torch.device) -> None:
        """Remember the tensor; nothing is copied yet."""
        self.host, self.device = host, device
        self.there: Tensor | None = None

    def get(self) -> Tensor:
        """The copy, made where it is needed for the first time."""
        if self.there is not None:
            return self.there
        there = copied(self.host, self.device)
        if not torch.cuda.is_current_stream_capturing():
            self.there = there
        return there


class Cell:
    """A place on a device that holds what was put there last, for graphs that are replayed."""

    def __init__(self, device: torch.device) -> None:
        """Remember the device; nothing is there yet."""
        self.device = device
        self.source: Tensor | None = None
        self.there: Tensor | None = None
        self.is_current = False

    def put(self, source: Tensor) -> None:
        """Have a tensor in pinned memory copied at the next :meth:`get`; it must not change any more."""
        self.is_current = self.is_current and source is self.source
        self.source = source

    def get(self) -> Tensor:
        """The place."""
        assert self.source is not None
        if self.there is None:
            self.there = torch.empty_like(self.source, device=self.device)
        if not self.is_current:
            self.there.copy_(self.source, non_blocking=True)
        self.is_current = True
        return self.there

    def copy(self) -> Tensor:
        """A copy of its own for a graph that is being captured."""
        assert self.source is not None
        return copied(self.source, self.device)

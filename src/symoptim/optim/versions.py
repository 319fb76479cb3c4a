"""Version counters of parameters: by them autograd sees that what it has saved was overwritten.

Kernels write to addresses, of which torch knows nothing, and so the counters have to be told, as an operation
of torch's own would do.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from symoptim.geometry.distributed import is_distributed

# With a tensor that only Python holds, torch takes three times as long to do anything. A list of C++ holds
# tensors too; its name is not public.
_held: Callable[[list[Tensor]], object] | None = getattr(
    torch._C,  # pyright: ignore[reportPrivateUsage]
    "ScriptList",
    None,
)


class Versions:
    """Counters of some parameters.

    >>> weight = torch.zeros(3)
    >>> versions = Versions([weight])
    >>> versions.count()
    >>> weight._version
    1
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        """Find the counters."""
        self._counters = list(map(_counter_of, parameters))
        self._holder: Any = None
        if _held is not None and self._counters:
            with suppress(TypeError, RuntimeError):  # of tensors that such a list does not take
                self._holder = _held(self._counters)

    def count(self) -> None:
        """Say that all have been overwritten."""
        increment_version(self._counters)


@torch.no_grad()
def _counter_of(parameter: Tensor) -> Tensor:
    """A tensor with the same counter, but no memory: that of the parameter is not to be kept for it.

    Nor is the parameter itself, by what a garbage collector does not see.
    """
    if is_distributed(parameter) or parameter.is_inference():
        return parameter
    counter = parameter.detach()
    counter.data = counter.new_empty(0)
    return counter

"""Just enough of Triton to run kernels on the CPU, program by program: what they compute, not how fast."""

import itertools
from types import ModuleType
from typing import Any

import torch
from torch import Tensor


class Pointer:
    """A place in a tensor, or a tile of places."""

    def __init__(self, tensor: Tensor, offset: Any = 0) -> None:
        self.flat, self.offset = tensor.view(-1), offset

    def __add__(self, offset: Any) -> "Pointer":
        return Pointer(self.flat, self.offset + offset)


class Kernel:
    """A kernel, or a function kernels call."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, num_warps: int = 4, **constants: Any) -> None:
            pointers = [Pointer(a) if isinstance(a, Tensor) else a for a in arguments]
            for program in itertools.product(*map(range, grid)):
                Language.program = program
                self.function(*pointers, **constants)

        return launch


def _places(pointer: Pointer, mask: Tensor | bool | None) -> tuple[Tensor, Tensor]:
    places = torch.as_tensor(pointer.offset)
    inside = (
        torch.ones_like(places, dtype=torch.bool)
        if mask is None
        else torch.as_tensor(mask).expand(places.shape)
    )
    assert bool(((places >= 0) & (places < len(pointer.flat)))[inside].all()), "out of bounds"
    return places, inside


class Language(ModuleType):
    """``triton.language``."""

    program: tuple[int, ...] = ()
    float32, float64, int64 = torch.float32, torch.float64, torch.int64

    class PropagateNan:
        ALL = True

    constexpr = staticmethod(lambda value: value)
    program_id = staticmethod(lambda axis: Language.program[axis])
    debug_barrier = staticmethod(lambda: None)
    trans = staticmethod(lambda x: x.T)
    zeros = staticmethod(lambda shape, dtype: torch.zeros(shape, dtype=dtype))
    dot = staticmethod(lambda x, y, total=0.0, *, input_precision: total + x @ y)
    sum = staticmethod(lambda x, axis: x.sum(axis))
    max = staticmethod(lambda x, axis: torch.where(x.isnan(), -torch.inf, x).amax(axis))
    min = staticmethod(lambda x, axis: x.amin(axis))
    maximum = staticmethod(lambda x, y, propagate_nan: torch.maximum(x, y))
    exp, log, sqrt = torch.exp, torch.log, torch.sqrt

    @staticmethod
    def arange(start: int, stop: int) -> Tensor:
        assert stop & (stop - 1) == 0, "tiles are powers of two"
        return torch.arange(start, stop)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Tensor:
        return torch.where(torch.as_tensor(condition), x, y)

    @staticmethod
    def load(pointer: Pointer, mask: Tensor | None = None, other: float = torch.nan) -> Tensor:
        places, inside = _places(pointer, mask)
        found = pointer.flat[torch.where(inside, places, 0)]
        if not found.is_floating_point():
            return torch.where(inside, found, 0)
        return torch.where(inside, found, other)

    @staticmethod
    def store(pointer: Pointer, value: Tensor, mask: Tensor | bool | None = None) -> None:
        places, inside = _places(pointer, mask)
        value = torch.as_tensor(value).to(pointer.flat.dtype).expand(places.shape)
        pointer.flat[places[inside]] = value[inside]


def on_paper() -> dict[str, ModuleType]:
    """Modules that stand in for Triton."""
    triton, language = ModuleType("triton"), Language("triton.language")
    triton.jit, triton.language = Kernel, language
    return {"triton": triton, "triton.language": language}

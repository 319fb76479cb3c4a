"""Images as lists of their pixels that are not zero: four fifths of MNIST's pixels are, and add nothing.

A product with images then takes a fifth of the multiplications. The numbers are those of the dense product to
rounding; only what is not finite may differ, for zero times infinity is not computed.

Axis letters: r run, s source of images, o filter, i input, b example.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symoptim.engine.numerics import compiled_for

# Share of pixels up to which lists are faster: on one core of an AMD EPYC both ways take the same time at .45,
# November 2026. MNIST has .19, Fashion-MNIST .50, the 8x8 digits .51.
DARKEST = 0.35


def _kernels() -> Any:
    return import_module("symoptim.engine.strokes")


@dataclass(frozen=True, eq=False)
class Ink:
    """The dark pixels of images: those of image n are at ``starts[n]`` to ``starts[n + 1]``."""

    starts: NDArray[np.int64]
    places: NDArray[np.int32]
    values: NDArray[Any]
    inputs: int

    @classmethod
    def of(cls, pixels: Tensor) -> "Ink":
        """Of images ``(n, i)`` on the CPU.

        >>> Ink.of(torch.tensor([[0.0, 0.5], [0.0, 0.0], [1.0, 0.25]])).places
        array([1, 0, 1], dtype=int32)
        """
        images = pixels.numpy()
        starts = np.empty(len(images) + 1, np.int64)
        _kernels().count_ink(images, starts)
        places, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], images.dtype)
        _kernels().list_ink(images, starts, places, values)
        return cls(starts, places, values, images.shape[1])


def pays(pixels: Tensor, filters: int) -> bool:
    """Whether lists can be made of images ``(n, i)`` and are faster, with that many filters.

    >>> pays(torch.ones(2, 3), filters=8)
    False
    """
    if pixels.ndim != 2 or filters % 8 or not compiled_for(pixels):
        return False
    return int(pixels.count_nonzero()) <= DARKEST * pixels.numel()


@dataclass(frozen=True, eq=False)
class Drawn:
    """Images by their numbers ``(s, b)``, the right factor of a product."""

    ink: Ink
    index: NDArray[np.int64]

    def __len__(self) -> int:
        """How many sources there are."""
        return len(self.index)

    def __getitem__(self, sources: slice) -> "Drawn":
        """The images of some of the sources."""
        return Drawn(self.ink, self.index[sources])

    def responses(self, filters: Tensor, blocks: int) -> Tensor:
        """W X: responses ``(r, o, b)`` of filters ``(r, o, i)`` that lie with their inputs first.

        They are ``blocks`` of equally many runs; in each, neighbors share a source.
        """
        found = filters.new_empty(*filters.shape[:2], self.index.shape[1])
        alike = len(filters) // (blocks * len(self))
        ink = self.ink
        _share_out(
            _kernels().respond, filters.mT.numpy(), ink.starts, ink.places, ink.values, self.index, alike,
            found.numpy(),
        )  # fmt: skip
        return found

    def add_product(self, changes: Tensor, sign: float, filters: Tensor) -> None:
        """Add ``sign`` times D X' to filters ``(r, o, i)`` that lie with their inputs first, in place."""
        alike = len(changes) // len(self)
        number = changes.numpy().dtype.type(sign)
        _share_out(_kernels().add, changes.numpy(), *self._turned, alike, number, filters.mT.numpy())

    def pixels(self) -> Tensor:
        """The images themselves, ``(s, b, i)``.

        >>> Drawn(Ink.of(torch.eye(3)), np.array([[2, 0]])).pixels()
        tensor([[[0., 0., 1.],
                 [1., 0., 0.]]])
        """
        ink, found = self.ink, np.zeros((self.index.size, self.ink.inputs), self.ink.values.dtype)
        for image, n in zip(found, self.index.flat, strict=True):
            listed = slice(ink.starts[n], ink.starts[n + 1])
            image[ink.places[listed]] = ink.values[listed]
        return torch.from_numpy(found).view(*self.index.shape, -1)

    @cached_property
    def _turned(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]:
        """By pixel: where its examples end, the examples, and how dark it is in them."""
        ink = self.ink
        total = int((ink.starts[self.index + 1] - ink.starts[self.index]).sum())
        turned = (
            np.empty((len(self), ink.inputs), np.int64),
            np.empty(total, np.int32),
            np.empty(total, ink.values.dtype),
        )
        _kernels().turn(ink.starts, ink.places, ink.values, self.index, *turned)
        return turned


def pixels_of(images: Tensor | Drawn) -> Tensor:
    """Images as they are, or those that are drawn."""
    return images.pixels() if isinstance(images, Drawn) else images


def lies_inputs_first(filters: Tensor) -> bool:
    """Whether filters ``(r, o, i)`` lie in memory as ``(r, i, o)``, and not as they are written."""
    return filters.mT.is_contiguous() and not filters.is_contiguous()


def squared_lengths(filters: Tensor) -> Tensor:
    """Of filters ``(r, o, i)`` that lie with their inputs first: ``(r, o, 1)``."""
    found = filters.new_empty(*filters.shape[:2], 1)
    _kernels().square(filters.mT.numpy(), found.squeeze(2).numpy())
    return found


def make_unit_(filters: Tensor, signs: Tensor) -> None:
    """Bring such filters to length one, and turn those whose sign ``(r, o, 1)`` is negative."""
    _kernels().make_unit(filters.mT.numpy(), signs.squeeze(2).numpy())


def _share_out(work: Any, first: NDArray[Any], *others: Any) -> None:
    """Call a kernel on all runs, the first axis of its first array; every thread has some of them."""
    _shares(len(first), first[0].size).call(work, first, *others)


@cache
def _shares(runs: int, each: int) -> Any:
    shares = import_module("symoptim.kernels.cpu.shares")
    return shares.Shares([shares.cut(0, runs, 1, each=each)])

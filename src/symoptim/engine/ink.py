"""Images as lists of their pixels that are not zero: four fifths of MNIST's are zero, and add nothing.

A product with images then takes a fifth of the multiplications. The numbers are those of the dense product to
rounding; only what is not finite may differ, for zero times infinity is not computed.

Axis letters: n image, r run, s source of images, o filter, i input, b example.
"""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from symoptim.engine.numerics import compiled_for

DARKEST = 0.35
"""Share of dark pixels up to which lists are used.

On a core of an AMD EPYC a step of the paper's networks takes .6 of the time it takes with dense images at a
share of .2, .8 at .3, .9 at .4 and 1.1 at .5 (November 2026).
MNIST has .19, Fashion-MNIST .50, the 8x8 digits .51.
"""


@dataclass(frozen=True, eq=False)
class Ink:
    """The dark pixels of images ``(n, i)``: those of image n are at ``starts[n]`` to ``starts[n + 1]``."""

    pixels: Tensor
    starts: Tensor
    places: Tensor
    values: Tensor

    @classmethod
    def of(cls, pixels: Tensor) -> "Ink":
        """Of images on the CPU; they are listed once, however many ask.

        >>> Ink.of(torch.tensor([[0.0, 0.5], [0.0, 0.0], [1.0, 0.25]])).places
        tensor([1, 0, 1], dtype=torch.int32)
        """
        key = id(pixels), pixels._version  # whose list it is cannot go before it, and so keeps its id
        found = _LISTED.get(key)
        if found is None:
            dark = pixels != 0
            starts = torch.nn.functional.pad(dark.sum(dim=1).cumsum(dim=0), (1, 0))
            places = dark.flatten().nonzero().squeeze(1).remainder_(pixels.shape[1]).int()
            found = _LISTED[key] = cls(pixels, starts, places, pixels[dark])
        return found


_LISTED: WeakValueDictionary[tuple[int, int], Ink] = WeakValueDictionary()


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
    """Images by their numbers ``(s, b)``, or ``(b,)`` for all runs: the right factor X' of a product.

    >>> Drawn(Ink.of(torch.eye(3)), torch.tensor([[2, 0]])).pixels()
    tensor([[[0., 0., 1.],
             [1., 0., 0.]]])
    """

    ink: Ink
    index: Tensor

    def __len__(self) -> int:
        """How many sources there are."""
        return len(self.index) if self.index.ndim == 2 else 1

    def __getitem__(self, sources: slice) -> "Drawn":
        """The images of some of the sources."""
        return Drawn(self.ink, self.index[sources])

    def pixels(self) -> Tensor:
        """The images themselves, ``(s, b, i)`` or ``(b, i)``."""
        return self.ink.pixels[self.index]

    def responses(self, filters: Tensor, blocks: int) -> Tensor:
        """W X: responses ``(r, o, b)`` of filters ``(r, o, i)`` that lie with their inputs first.

        They are ``blocks`` of equally many runs; in each, neighbors share a source.
        """
        found = filters.new_empty(*filters.shape[:2], self.index.shape[-1])
        alike = len(filters) // (blocks * len(self))
        _share_out("respond", filters.mT, *self._lists(), alike, found)
        return found

    def add_product(self, changes: Tensor, sign: int, filters: Tensor) -> None:
        """Add ``sign`` times D X' to filters ``(r, o, i)`` that lie with their inputs first, in place.

        ``changes`` is D ``(r, o, b)``.
        """
        _share_out("add", filters.mT, *self._lists(), len(changes) // len(self), changes, sign)

    def _lists(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.ink.starts, self.ink.places, self.ink.values, self.index.view(len(self), -1)


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


def _kernels() -> Any:
    return import_module("symoptim.engine.strokes")  # there, or nothing had been drawn


def _share_out(name: str, filters: Tensor, *others: Tensor | int) -> None:
    """Call a kernel on filters ``(r, i, o)``; every thread has some of the runs."""
    arguments = [x.numpy() if isinstance(x, Tensor) else x for x in (filters, *others)]
    _shares(len(filters), filters[0].numel()).call(getattr(_kernels(), name), *arguments)


@cache
def _shares(runs: int, each: int) -> Any:
    shares = import_module("symoptim.kernels.cpu.shares")
    return shares.Shares([shares.cut(0, runs, 1, each=each)])

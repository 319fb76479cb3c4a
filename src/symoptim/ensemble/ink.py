"""Images as lists of their pixels that are not zero: four fifths of MNIST's are zero, and add nothing.

A product with images then takes a fifth of the multiplications. The numbers are those of the dense product to
rounding; only what is not finite may differ, for zero times infinity is not computed.

Axis letters: n image, r run, s source of images, o filter, i input, b example.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from symoptim.ensemble.numerics import compiled_for
from symoptim.paper.data.split import Split

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
        """Of images on the CPU, which are not written to; they are listed once for all that ask meanwhile.

        >>> Ink.of(torch.tensor([[0.0, 0.5], [0.0, 0.0], [1.0, 0.25]])).places
        tensor([1, 0, 1], dtype=torch.int32)
        """
        if pixels.is_inference():  # nobody counts how often it is written to
            return cls._listed(pixels)
        key = id(pixels), pixels._version  # whose list it is cannot go before it, and so keeps its id
        found = _LISTED.get(key)
        if found is None:
            found = _LISTED[key] = cls._listed(pixels)
        return found

    @classmethod
    def _listed(cls, pixels: Tensor) -> "Ink":
        dark = pixels != 0
        starts = torch.nn.functional.pad(dark.sum(dim=1).cumsum(dim=0), (1, 0))
        places = dark.flatten().nonzero().squeeze(1).remainder_(pixels.shape[1]).int()
        return cls(pixels, starts, places, pixels[dark])


_LISTED: WeakValueDictionary[tuple[int, int], Ink] = WeakValueDictionary()


def pays(data: Split, filters: Tensor) -> bool:
    """Whether lists of all images fit filters ``(r, o, i)``, and are faster.

    With more than one thread dense products are as fast: they are shared out.

    >>> blank, nothing = torch.eye(9), torch.zeros(9, dtype=torch.long)
    >>> pays(Split(blank, nothing, torch.ones(9, 9), nothing), torch.ones(1, 8, 9))
    False
    """
    if filters.shape[1] % 8 or torch.get_num_threads() > 1 or not compiled_for(filters):
        return False
    return all(
        images.ndim == 2
        and images.device == filters.device
        and images.dtype == filters.dtype
        and images.shape[1] == filters.shape[2]
        and int(images.count_nonzero()) <= DARKEST * images.numel()
        for images in (data.train_images, data.test_images)
    )


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
        _call("respond", filters, *self._lists(), alike, found)
        return found

    def add_product(self, changes: Tensor, sign: int, filters: Tensor) -> None:
        """Add ``sign`` times D X' to filters ``(r, o, i)`` that lie with their inputs first, in place.

        ``changes`` is D ``(r, o, b)``.
        """
        _call("add", filters, *self._lists(), len(changes) // len(self), changes, sign)

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
    return import_module("symoptim.ensemble.strokes")  # there, or nothing had been drawn


def _call(name: str, filters: Tensor, *others: Tensor | int) -> None:
    """Call a kernel on filters ``(r, o, i)``, which it takes as ``(r, i, o)``."""
    if not filters.mT.is_contiguous():  # kernels go by addresses
        raise ValueError(
            f"filters of shape {tuple(filters.shape)} and strides {filters.stride()} have to lie in memory "
            "with their inputs first; see Stack.put_inputs_first"
        )
    arguments = (x.numpy() if isinstance(x, Tensor) else x for x in (filters.mT, *others))
    getattr(_kernels(), name)(*arguments)

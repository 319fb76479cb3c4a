"""Images as compressed sparse rows: four fifths of MNIST's pixels are zero, and add nothing to a product.

A product with images then takes a fifth of the multiplications. The results are those of the dense product to
rounding; only values that are not finite may differ, for zero times infinity is not computed.

Axis letters: n image, r run, s row of images that some runs share, o filter, i input, b example.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from symoptim.ensemble.fast import numba_layers_for

LARGEST_DENSITY = 0.35
"""Share of nonzero pixels up to which images are stored sparse.

On a core of an AMD EPYC a step of the paper's networks takes .6 of the time it takes with dense images at a
share of .2, .8 at .3, .9 at .4 and 1.1 at .5 (November 2026).
MNIST has .19, Fashion-MNIST .50, the 8x8 digits .51.
"""


@dataclass(frozen=True, eq=False)
class SparseImages:
    """Images ``(n, i)`` in CSR format: image n has ``columns`` and ``values`` from ``starts[n]`` on."""

    pixels: Tensor
    """The images as they were given."""
    starts: Tensor
    columns: Tensor
    values: Tensor

    @classmethod
    def of(cls, pixels: Tensor) -> "SparseImages":
        """Compress images on the CPU that are not written to; once for all callers that hold the result.

        >>> SparseImages.of(torch.tensor([[0.0, 0.5], [0.0, 0.0], [1.0, 0.25]])).columns
        tensor([1, 0, 1], dtype=torch.int32)
        """
        if pixels.is_inference():  # such tensors have no version
            return cls._compressed(pixels)
        key = id(pixels), pixels._version  # the id stays in use for as long as the result, which holds pixels
        found = _COMPRESSED.get(key)
        if found is None:
            found = _COMPRESSED[key] = cls._compressed(pixels)
        return found

    @classmethod
    def _compressed(cls, pixels: Tensor) -> "SparseImages":
        nonzero = pixels != 0
        starts = torch.nn.functional.pad(nonzero.sum(dim=1).cumsum(dim=0), (1, 0))
        columns = nonzero.flatten().nonzero().squeeze(1).remainder_(pixels.shape[1]).int()
        return cls(pixels, starts, columns, pixels[nonzero])


_COMPRESSED: WeakValueDictionary[tuple[int, int], SparseImages] = WeakValueDictionary()


def sparse_is_faster(image_sets: Iterable[Tensor], filters: Tensor) -> bool:
    """Whether products of filters ``(r, o, i)`` with all these images are possible and faster when sparse.

    With more than one thread dense products are as fast: torch computes them by all threads.

    >>> sparse_is_faster((torch.eye(9), torch.ones(9, 9)), torch.ones(1, 8, 9))
    False
    """
    if filters.shape[1] % 8 or torch.get_num_threads() > 1 or not numba_layers_for(filters):
        return False
    return all(
        images.ndim == 2
        and images.device == filters.device
        and images.dtype == filters.dtype
        and images.shape[1] == filters.shape[2]
        and int(images.count_nonzero()) <= LARGEST_DENSITY * images.numel()
        for images in image_sets
    )


@dataclass(frozen=True, eq=False)
class SparseBatch:
    """Images by their numbers ``(s, b)``, or ``(b,)`` for all runs: the right factor X' of a product.

    >>> SparseBatch(SparseImages.of(torch.eye(3)), torch.tensor([[2, 0]])).dense()
    tensor([[[0., 0., 1.],
             [1., 0., 0.]]])
    """

    images: SparseImages
    index: Tensor

    def __len__(self) -> int:
        """The number of rows s."""
        return len(self.index) if self.index.ndim == 2 else 1

    def __getitem__(self, rows: slice) -> "SparseBatch":
        """The images of some of the rows."""
        return SparseBatch(self.images, self.index[rows])

    def dense(self) -> Tensor:
        """The images themselves, ``(s, b, i)`` or ``(b, i)``."""
        return self.images.pixels[self.index]

    def responses(self, filters: Tensor, blocks: int) -> Tensor:
        """W X: responses ``(r, o, b)`` of filters ``(r, o, i)`` that are stored with their inputs first.

        They are ``blocks`` of equally many runs; in each, neighbors share a row of images.
        """
        found = filters.new_empty(*filters.shape[:2], self.index.shape[-1])
        runs_per_row = len(filters) // (blocks * len(self))
        _call("respond", filters, *self._arrays(), runs_per_row, found)
        return found

    def add_product(self, changes: Tensor, sign: int, filters: Tensor) -> None:
        """Add ``sign`` times D X' to filters ``(r, o, i)`` that are stored with their inputs first, in place.

        ``changes`` is D ``(r, o, b)``.
        """
        _call("add", filters, *self._arrays(), len(changes) // len(self), changes, sign)

    def _arrays(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.images.starts, self.images.columns, self.images.values, self.index.view(len(self), -1)


def dense_images(images: Tensor | SparseBatch) -> Tensor:
    """Images as a tensor."""
    return images.dense() if isinstance(images, SparseBatch) else images


def is_inputs_first(filters: Tensor) -> bool:
    """Whether filters ``(r, o, i)`` are stored as ``(r, i, o)``, and not as they are written."""
    return filters.mT.is_contiguous() and not filters.is_contiguous()


def squared_lengths(filters: Tensor) -> Tensor:
    """Of filters ``(r, o, i)`` that are stored with their inputs first: ``(r, o, 1)``."""
    found = filters.new_empty(*filters.shape[:2], 1)
    _kernels().square(filters.mT.numpy(), found.squeeze(2).numpy())
    return found


def make_unit_(filters: Tensor, signs: Tensor) -> None:
    """Bring such filters to length one, and negate those whose sign ``(r, o, 1)`` is negative."""
    _kernels().make_unit(filters.mT.numpy(), signs.squeeze(2).numpy())


def _kernels() -> ModuleType:
    return import_module("symoptim.ensemble.fast.sparse_products")  # numba is there, or images would be dense


def _call(name: str, filters: Tensor, *others: Tensor | int) -> None:
    """Call a kernel on filters ``(r, o, i)``, which it takes as ``(r, i, o)``."""
    if not filters.mT.is_contiguous():  # kernels go by addresses
        raise ValueError(
            f"filters of shape {tuple(filters.shape)} and strides {filters.stride()} have to be stored with "
            "their inputs first; see StackedModel.store_inputs_first"
        )
    arguments = (x.numpy() if isinstance(x, Tensor) else x for x in (filters.mT, *others))
    getattr(_kernels(), name)(*arguments)

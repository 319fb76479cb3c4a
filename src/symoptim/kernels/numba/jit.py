# pyright: basic
"""How functions are compiled, and arrays made of addresses. numba has no types."""

import hashlib
from pathlib import Path
from typing import Any

import numba
from numba import carray  # pyright: ignore[reportPrivateImportUsage]
from numba.core import types
from numba.extending import intrinsic

# Sums may be reordered, which is what makes them fast; NaN and infinity stay what they are.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
_IN_ORDER: dict[str, Any] = {**_OPTIONS, "fastmath": {"contract", "nsz"}}

# LLVM puts parts where they are called. Else there would be two versions of a part, its own and one that is
# kept with the kernel, which may round otherwise: the process that compiles uses the one, later ones the
# other.
_PART: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

njit = numba.njit(**_PART, **_OPTIONS)
"""Compile a part of a kernel."""

inlined = numba.njit(inline="always", **_PART, **_OPTIONS)
"""Compile a part of a kernel together with what calls it: loops are made for what is known there."""

in_order = numba.njit(**_PART, **_IN_ORDER)
"""Compile a part of a kernel whose products are not to be reordered: factors may be large, results not."""


def kernel(function):
    """Compile a kernel, once on a machine: the result is kept beside the source, or in the user's cache."""
    try:
        return numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # there is no place to keep it
        return numba.njit(**_OPTIONS)(function)


SOURCES = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.parent.rglob("*.py")))
).hexdigest()
"""What a kept kernel depends on besides its own file. numba looks at no other file, but at what a function
encloses."""


@intrinsic
def _pointer(context, address, like):  # noqa: ARG001 - numba's protocol
    pointer = types.CPointer(like.dtype)

    def cast(backend, builder, _, arguments):
        return builder.inttoptr(arguments[0], backend.get_value_type(pointer))

    return pointer(types.int64, like), cast


@njit
def array_at(address, size, like):
    """The entries at an address, as an array with the type of ``like``; none at address zero."""
    return carray(_pointer(address, like), size if address else 0)  # pyright: ignore[reportCallIssue]


@intrinsic
def _narrow(context):  # noqa: ARG001 - numba's protocol
    def mark(backend, builder, _, __):
        # llvmlite's own ``add`` knows few attributes.
        set.add(builder.function.attributes, '"prefer-vector-width"="256"')
        return backend.get_dummy_value()

    return types.void(), mark


narrow: Any = _narrow
"""Called in a function, it has the loops there compiled to vectors of 32 bytes.

On AMD's Zen 4 LLVM would take 64, and steps up to a sixth longer for it. For Intel's cores it takes 32 by
itself.
"""

# pyright: basic
"""How functions are compiled, and arrays made of addresses. numba has no types."""

import numba
from numba import carray  # pyright: ignore[reportPrivateImportUsage]
from numba.core import types
from numba.extending import intrinsic

# Sums may be reordered, which is what makes them fast; NaN and infinity stay what they are.
njit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


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

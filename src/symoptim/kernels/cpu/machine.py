# pyright: basic
"""What kernels have to know of the processor: the same loop is not the fastest on all of them."""

import os

import llvmlite.binding


def _first_cache() -> int:
    try:
        size = os.sysconf("SC_LEVEL1_DCACHE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on Linux
        size = 0
    return size if size > 0 else 1 << 15  # some do not say


NEAR = _first_cache()
"""Bytes of the first cache."""

FAR = 1 << 18
"""Bytes that fit any second cache."""

MANY_STREAMS = not llvmlite.binding.get_host_cpu_name().startswith("znver")
"""Whether a core reads faster from more places at once. One of Intel's does, up to six; AMD's Zen 4 reads a
fifth less, because it goes on fetching ahead only where it is not interrupted."""

# pyright: basic
"""What kernels have to know of the processor: the same loop is not the fastest on all of them."""

from pathlib import Path

import llvmlite.binding


def _cache(index: int, otherwise: int) -> int:
    """Bytes of one of a core's caches, for data; what most have or more, where Linux does not say."""
    try:
        kilobytes = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").read_text().strip()
        return int(kilobytes.removesuffix("K")) << 10
    except (OSError, ValueError):
        return otherwise


NEAR = _cache(0, 1 << 15)
"""Bytes that fit the first cache."""

FAR = _cache(2, 1 << 19) // 2
"""Bytes that fit the second cache, with as many for what is read ahead."""

ZEN = llvmlite.binding.get_host_cpu_name().startswith("znver")
"""Whether this is one of AMD's Zen cores, which fetch ahead only where they are not interrupted.

Those of Intel read as fast, or faster, where what they read is of several kinds in turn.
"""

# pyright: basic
"""What kernels have to know of the processor: the same loop is not the fastest on all of them."""

from pathlib import Path

import llvmlite.binding


def _first_cache() -> int:
    """Bytes of a core's first cache, for data; 32 KiB, as most have or more, where Linux does not say."""
    try:
        kilobytes = Path("/sys/devices/system/cpu/cpu0/cache/index0/size").read_text().strip()
        return int(kilobytes.removesuffix("K")) << 10
    except (OSError, ValueError):
        return 1 << 15


NEAR = _first_cache()
"""Bytes that fit the first cache."""

FAR = 1 << 18
"""Bytes that fit any second cache."""

MANY_STREAMS = not llvmlite.binding.get_host_cpu_name().startswith("znver")
"""Whether a core reads faster from more places at once. One of Intel's does, up to six; AMD's Zen 4 reads a
fifth less, because it goes on fetching ahead only where it is not interrupted."""

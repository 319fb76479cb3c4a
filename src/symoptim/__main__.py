"""``python -m symoptim`` and the command ``symoptim``."""

import logging
import sys

from symoptim.errors import SymoptimError


def main() -> None:
    """Run a command; an error of this package becomes one line that says what to do, and exit code 1."""
    try:
        from symoptim.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"error: the command line needs {error.name}: in a clone, pip install '.[paper]'")
    # What the library has to say on the way, such as where data come from.
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    try:
        app(prog_name="symoptim")
    except SymoptimError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

"""``python -m symoptim`` and the command ``symoptim``."""

import logging
import sys

from symoptim.cli.extras import extra_of, installation
from symoptim.errors import SymoptimError


def main() -> None:
    """Run a command; an error of this package becomes one line that says what to do, and exit code 1."""
    try:
        from symoptim.cli.app import app

        # What the library has to say on the way, such as where data come from.
        logging.basicConfig(format="%(message)s", level=logging.INFO)
        app(prog_name="symoptim")
    except ModuleNotFoundError as error:
        extra = extra_of(error.name)
        if extra is None:
            raise
        package = str(error.name).partition(".")[0]
        sys.exit(f"error: this command needs {package}: {installation(extra)}")
    except SymoptimError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

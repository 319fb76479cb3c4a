"""The command ``symoptim`` with a quick profile so small that tests can wait for it, or kill it."""

import signal

import symoptim.paper.runner
from symoptim.__main__ import main
from symoptim.paper.data import roads
from symoptim.paper.segnet.protocol import PROFILES

TINY = {"size": (16, 24), "features": 4, "epochs": 6, "batch": 8, "measure_every": 2}
COUNTS = (40, 10, 10)


def shrink() -> None:
    """Make the quick profile tiny, and its state saved after every epoch."""
    PROFILES["quick"].update(TINY)
    roads.COUNTS = COUNTS
    symoptim.paper.runner.CHECKPOINT_SECONDS = 0.0
    symoptim.paper.runner.CHECKPOINT_SHARE = 1e9


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background begin without
    shrink()
    main()

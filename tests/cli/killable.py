"""The command ``symoptim``, saving its state more often: a program for tests to kill."""

import symoptim.experiments.reproduce
from symoptim.__main__ import main

symoptim.experiments.reproduce.CHECKPOINT_SECONDS = 0.3

if __name__ == "__main__":
    main()

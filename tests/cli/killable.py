"""The command ``symoptim``, saving its state more often: a program for tests to kill."""

import symoptim.experiments.recording
from symoptim.__main__ import main

if __name__ == "__main__":
    symoptim.experiments.recording.CHECKPOINT_SECONDS = 0.3
    symoptim.experiments.recording.CHECKPOINT_SHARE = 1.0
    main()

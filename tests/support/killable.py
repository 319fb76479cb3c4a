"""The command ``symoptim``, saving its state more often: a program for tests to kill."""

import signal

import torch

import symoptim.paper.runner
from symoptim.__main__ import main
from symoptim.ensemble.ensemble import Ensemble
from symoptim.ensemble.images import Split
from symoptim.ensemble.run import Constant, FixedEpochs, Run
from symoptim.models import arch2


def load_kernels() -> None:
    """Have kernels loaded, or compiled: it takes longer than the time between two states here."""
    images, labels = torch.rand(8, 4), torch.zeros(8, dtype=torch.int64)
    stopping = FixedEpochs(maximum=1)
    runs = {
        update: Run(
            update=update, rate=0.1, schedule=Constant(), stopping=stopping, seed=0, train=4, validation=4
        )
        for update in ("sm", "un")
    }
    network = lambda: arch2(inputs=4, width=4, classes=2)  # noqa: E731
    Ensemble(runs, network, Split(images, labels, images, labels), batch=4).train_epoch()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background begin without
    load_kernels()
    symoptim.paper.runner.CHECKPOINT_SECONDS = 0.3
    symoptim.paper.runner.CHECKPOINT_SHARE = 1.0
    main()

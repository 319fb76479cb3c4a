"""Train 24 networks of your own at once: three updates, eight seeds, each as if it were alone.

python examples/ensemble.py
"""

import statistics

from torch import nn

from symoptim.ensemble import Ensemble, Exponential, FixedEpochs, Run
from symoptim.paper.data.digits import load_digits

# For the loss summed over a batch of 100: for SGD a hundred times smaller than for its mean.
RATES = {"b-sgd": 1e-3, "sm": 1e-2, "invariant-adamw": 1e-2}


def network() -> nn.Module:
    """Any module will do that torch can map over: this one convolves 8x8 images."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(72, 10),
    )


def main() -> None:
    """Train all runs together and print the mean test error of every update."""
    runs = {
        f"{update}/{seed}": Run(
            update=update,
            rate=rate,
            schedule=Exponential(decay=0.95),
            stopping=FixedEpochs(maximum=10),
            seed=seed,
            train=1200,
            validation=300,
        )
        for update, rate in RATES.items()
        for seed in range(8)
    }
    ensemble = Ensemble(runs, network, load_digits(), batch=100)
    while ensemble.is_running:
        ensemble.train_epoch()
    for update in RATES:
        errors = [ensemble.histories[name][-1].test_error for name in runs if name.startswith(f"{update}/")]
        print(f"{update:>16}: test error {statistics.mean(errors):.4f} ±{statistics.stdev(errors):.4f}")
    print(ensemble.network("sm/0"))  # the trained network of a run, to use as any other


if __name__ == "__main__":
    main()

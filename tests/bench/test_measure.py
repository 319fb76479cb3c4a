"""The slow are measured a few times, the fast as often as they can be in the same time."""

import time
from collections.abc import Callable

import torch

from symoptim.bench.cases import Case
from symoptim.bench.clock import CpuClock, Reading, Turn
from symoptim.bench.formulas import UNIT_NORM_UPDATES, pure
from symoptim.bench.measure import FEWEST, Budget, Measurement
from symoptim.bench.optimizers import CONTESTANTS, Contestant, Setup, Stepper
from symoptim.bench.tensors import CaseTensors
from symoptim.optim.sgd import UnitNormSGD

FAST = CONTESTANTS["un-reference"]


class _Slow(UnitNormSGD):
    """Sleeps before every step."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        time.sleep(0.1)
        return super().step(closure)


def _make_slow(setup: Setup) -> Stepper:
    groups = [{"params": [m.new_parameter()], "geometry": m.weight.geometry} for m in setup.pairs]
    return _Slow(groups, lr=setup.lr, momentum=setup.momentum, normalize=True)


SLOW = Contestant(name="slow", title="a slow UN", make=_make_slow, formula=pure(UNIT_NORM_UPDATES))


def measured(case: Case, clock: CpuClock) -> dict[str, int]:
    """How often each was timed."""
    tensors = CaseTensors(case, torch.device("cpu"), torch.float32, symmetries=False)
    measurement = Measurement(
        tensors=tensors,
        contestants=[SLOW, FAST],
        momentum=0.0,
        clock=clock,
        budget=Budget(turns=12, seconds=0.4),
    )
    return {line["contestant"]: line["turns"] for line in measurement.run()}


def test_whose_share_of_the_time_is_used_up_waits(small: Callable[[], Case]) -> None:
    assert measured(small(), CpuClock(1)) == {"slow": FEWEST, FAST.name: 12}


def test_the_first_steps_of_a_turn_are_not_counted(small: Callable[[], Case]) -> None:
    read: list[Reading] = []

    class Counting(CpuClock):
        turn = Turn(2, 3)

        def read(self, work: Callable[[], object]) -> Reading:
            read.append(super().read(work))
            return read[-1]

    counted = measured(small(), Counting(1))
    assert counted == {"slow": 3 * FEWEST, FAST.name: 3 * 12}
    copies = 3 * 12  # in every round, for the floor
    assert len(read) == copies + 5 * FEWEST + 5 * 12

"""The slow are measured a few times, the fast as often as they can be in the same time."""

import time
from collections.abc import Callable

import torch

from symoptim.bench.cases import Case
from symoptim.bench.clock import CpuClock, Reading, Turn
from symoptim.bench.contestants import Asked, Contestant, Stepper
from symoptim.bench.formulas import UNIT_NORM_UPDATES, pure
from symoptim.bench.material import Material
from symoptim.bench.rivals import CONTESTANTS
from symoptim.bench.turns import FEWEST, Pace, measure
from symoptim.optim.sgd import UnitNormSGD

FAST = CONTESTANTS["un-reference"]


class _Slow(UnitNormSGD):
    """Sleeps before every step."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        time.sleep(0.1)
        return super().step(closure)


def _make_slow(asked: Asked) -> Stepper:
    groups = [{"params": [m.fresh()], "geometry": m.weight.geometry} for m in asked.members]
    return _Slow(groups, lr=asked.rate, momentum=asked.momentum, normalize=True)


SLOW = Contestant(name="slow", title="a slow UN", make=_make_slow, formula=pure(UNIT_NORM_UPDATES))


def measured(case: Case, clock: CpuClock) -> dict[str, int]:
    """How often each was timed."""
    material = Material(case, torch.device("cpu"), torch.float32, symmetries=False)
    lines = measure(material, [SLOW, FAST], momentum=0.0, clock=clock, pace=Pace(turns=12, seconds=0.4))
    return {line["contestant"]: line["turns"] for line in lines}


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

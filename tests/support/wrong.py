"""Optimizers that must not be timed."""

from collections.abc import Callable

from symoptim.bench.formulas import UNIT_NORM_UPDATES, pure
from symoptim.bench.optimizers import Contestant, Setup, Stepper
from symoptim.optim.sgd import UnitNormSGD


def _make(setup: Setup) -> Stepper:
    groups = [{"params": [m.new_parameter()], "geometry": m.weight.geometry} for m in setup.pairs]
    return UnitNormSGD(groups, lr=setup.lr * 1.001, momentum=setup.momentum, normalize=True)


def _raise(setup: Setup) -> Stepper:
    if setup.tensors.case.name == "trial":
        return _make(setup)
    raise RuntimeError("no kernel for that\nand a long trace")


class _Tiring(UnitNormSGD):
    """Has no strength for an eighth step, those of its gate and its trial not counted."""

    steps = 0

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        self.steps += 1
        if self.steps == 8:
            raise MemoryError("out of it")
        return super().step(closure)


def _make_tiring(setup: Setup) -> Stepper:
    groups = [{"params": [m.new_parameter()], "geometry": m.weight.geometry} for m in setup.pairs]
    return _Tiring(groups, lr=setup.lr, momentum=setup.momentum, normalize=True)


WRONG = Contestant(name="wrong", title="a wrong UN", make=_make, formula=pure(UNIT_NORM_UPDATES))
"""Its rate is a thousandth too large."""

TIRING = Contestant(name="tiring", title="a tiring UN", make=_make_tiring, formula=pure(UNIT_NORM_UPDATES))

RAISING = Contestant(name="raising", title="a UN that raises", make=_raise, formula=pure(UNIT_NORM_UPDATES))

ABSENT = Contestant(
    name="absent",
    title="nobody's optimizer",
    make=_make,
    formula=pure(UNIT_NORM_UPDATES),
    package="no_such_package",
    install="pip install no-such-package",
)

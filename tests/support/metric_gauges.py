"""All gauges, for tests of each."""

import pytest

from symoptim import Geometric, OwnRow, PathNorm, Pooled

GAUGES = [Pooled(), OwnRow(), PathNorm(), Geometric()]
in_every_gauge = pytest.mark.parametrize("gauge", GAUGES, ids=lambda gauge: type(gauge).__name__)

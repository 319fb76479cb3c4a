import tempfile
from pathlib import Path

import pytest
import torch

from symoptim.errors import OptionError
from symoptim.paper.invariance.experiment import PANELS, Invariance, Rescaling
from symoptim.paper.invariance.pairs import Pair
from symoptim.paper.invariance.report import summarize
from symoptim.paper.runner import carry_out
from tests.support.small import small_data


def last(rescaling: Rescaling) -> list[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "invariance.sqlite"
        carry_out(Invariance(rescaling, small_data(), torch.device("cpu")), path)
        return summarize(path).pairs


@pytest.mark.parametrize("depth", [2, 4])
def test_plain_sgd_splits_and_the_others_coincide(depth: int) -> None:
    curves = last(Rescaling(depth=depth, epochs=4, spread=10.0))
    assert [(c.architecture, c.update) for c in curves] == [(a, u) for a in PANELS for u in PANELS[a]]
    for curve in curves:
        assert len(curve.balanced) == 4
        if curve.update == "b-sgd":
            assert curve.rescaled != pytest.approx(curve.balanced, rel=1e-2)
        else:
            assert curve.rescaled == pytest.approx(curve.balanced, rel=1e-10)


def test_seeds_matter() -> None:
    one, other = (last(Rescaling(epochs=1, seed=seed))[0] for seed in (0, 1))
    assert one != other


def test_a_spread_that_rescales_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match="spread must be above 1 and at most 1e6, got 1"):
        Rescaling(spread=1.0)

"""Ensembles that are saved and taken up go on as if nothing had happened; what cannot go on is refused."""

import pytest
import torch

from symoptim.ensemble.registry import UPDATES
from symoptim.ensemble.run import Bold, EarlyStopping, FixedEpochs
from symoptim.errors import OptionError
from tests.support.small import a_run, ensemble_of, train


@pytest.mark.parametrize("stop", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 5, 6))])
def test_training_taken_up_from_a_saved_state_goes_on_bit_for_bit(stop: int, tmp_path) -> None:
    early = EarlyStopping(minimum=2, maximum=6, lookback=2)
    runs = {
        f"{update}-{seed}": a_run(update, seed=seed, schedule=Bold(), stopping=stopping)
        for update in UPDATES
        for seed, stopping in ((0, FixedEpochs(maximum=6)), (1, early))
    }
    expected = train(ensemble_of(runs))
    first, second = ensemble_of(runs), ensemble_of(runs)
    for _ in range(stop):
        first.train_epoch()
    torch.save(first.state_dict(), tmp_path / "state")
    second.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert second.running == first.running
    assert second.histories == first.histories
    for name, results in train(second).items():
        assert results == expected[name][stop:]


def test_a_state_of_runs_that_have_ended_here_is_refused_and_changes_nothing() -> None:
    runs = {str(last): a_run(seed=last, stopping=FixedEpochs(maximum=last)) for last in (1, 3)}
    ensemble = ensemble_of(runs)
    fresh = ensemble.state_dict()
    ensemble.train_epoch()
    with pytest.raises(OptionError, match="run '1' has ended here"):
        ensemble.load_state_dict(fresh)
    assert (ensemble.epochs, ensemble.running) == (1, ["3"])
    assert len(ensemble.histories["3"]) == 1


def test_a_state_is_not_saved_while_an_epoch_is_on_its_way() -> None:
    ensemble = ensemble_of({"a": a_run()})
    ensemble._start_epoch()
    with pytest.raises(OptionError, match="an epoch is on its way"):
        ensemble.state_dict()
    ensemble.train_epoch()
    ensemble.state_dict()

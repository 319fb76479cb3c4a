"""The ensemble engine on a GPU: recorded steps train as the CPU does, and can be taken up bit for bit."""

import io

import pytest
import torch

from small import a_run, small_data, small_network, train
from symoptim.engine.registry import UPDATES, Pure
from symoptim.engine.run import Bold, EarlyStopping, FixedEpochs, Run
from symoptim.engine.shuffle import permutations
from symoptim.engine.training import Ensemble

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def runs() -> dict[str, Run]:
    early = EarlyStopping(minimum=2, maximum=5, lookback=2)
    return {
        f"{update}-{seed}": a_run(update, seed=seed, schedule=Bold(), stopping=stopping)
        for update in UPDATES
        for seed, stopping in ((0, FixedEpochs(maximum=5)), (1, early), (2, FixedEpochs(maximum=3)))
    }


def ensemble_on(device: str, architecture: str = "arch2", dtype: torch.dtype = torch.float64) -> Ensemble:
    return Ensemble(runs(), small_network(architecture, dtype), small_data(dtype), batch=30, device=device)


@pytest.mark.parametrize("architecture", ["arch1", "arch2"])
def test_recorded_steps_train_as_the_cpu_does(architecture: str) -> None:
    expected, results = (train(ensemble_on(device, architecture)) for device in ("cpu", "cuda"))
    for name, those in expected.items():
        assert len(results[name]) == len(those)
        # torch's AdamW, where it can be captured, counts its steps and powers in float32.
        tolerance = 1e-10 if isinstance(UPDATES[runs()[name].update], Pure) else 1e-5
        for one, other in zip(those, results[name], strict=True):
            assert other.epoch.loss == pytest.approx(one.epoch.loss, rel=tolerance), name
            assert other.epoch[3:] == one.epoch[3:], name


def test_steps_are_recorded_and_recorded_anew_when_runs_leave() -> None:
    pair = {"long": a_run(), "short": a_run(stopping=FixedEpochs(maximum=1))}
    ensemble = Ensemble(pair, small_network(), small_data(), batch=30, device="cuda")
    trainer = ensemble.trainer
    trainer.train_epoch(1)
    recorded = trainer.steps[30].graph
    assert recorded is not None
    ensemble.train_epoch()
    assert ensemble.running == ["long"]
    ensemble.train_epoch()
    assert trainer.steps[30].graph not in (None, recorded)


@pytest.mark.parametrize("stop", [1, 3])
def test_training_taken_up_from_a_saved_state_goes_on_bit_for_bit(stop: int) -> None:
    expected = train(ensemble_on("cuda", dtype=torch.float32))
    first, second = (ensemble_on("cuda", dtype=torch.float32) for _ in range(2))
    for _ in range(stop):
        first.train_epoch()
    saved = io.BytesIO()
    torch.save(first.state_dict(), saved)
    saved.seek(0)
    second.load_state_dict(torch.load(saved, weights_only=True, map_location="cpu"))
    for name, results in train(second).items():
        assert results == expected[name][stop:]


def test_permutations_are_those_of_the_cpu() -> None:
    seeds = [2**62 + 1, 5]
    assert torch.equal(permutations(seeds, 3, 50_000, "cuda").cpu(), permutations(seeds, 3, 50_000))

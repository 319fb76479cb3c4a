"""The ensemble engine on a GPU: recorded steps train as the CPU does, and can be taken up bit for bit."""

import io
import math
from collections.abc import Callable

import pytest
import torch

from small import PIXELS, a_run, small_data, small_network, train
from symoptim.engine.fused.group import FusedGroup
from symoptim.engine.registry import UPDATES, Pure
from symoptim.engine.run import Bold, EarlyStopping, FixedEpochs, Run
from symoptim.engine.shuffle import permutations
from symoptim.engine.training import Ensemble
from symoptim.models import PairwiseNetwork, arch1, arch2

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
    trainer.start_epoch(1)
    recorded = trainer.steps[30].graphs[1]
    ensemble.train_epoch()
    assert ensemble.running == ["long"]
    ensemble.train_epoch()
    assert trainer.steps[30].graphs[1] is not recorded


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


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("make", [arch1, arch2])
def test_float32_trains_as_float64_on_the_cpu(make: Callable[..., PairwiseNetwork], depth: int) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    runs = {
        f"{update}-{seed}": a_run(update, seed=seed, rate=1e-3, stopping=FixedEpochs(maximum=seed + 1))
        for update in ("b-sgd", "sm", "un")
        for seed in (0, 1)
    }
    results = {}
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        ensemble = Ensemble(
            runs,
            lambda dtype=dtype: make(depth, inputs=PIXELS, width=64, classes=4).to(dtype),
            small_data(dtype),
            batch=30,
            device=device,
        )
        assert isinstance(ensemble.trainer.groups[0], FusedGroup) == (device == "cuda")
        results[device] = train(ensemble)
    for name, those in results["cpu"].items():
        for one, other in zip(those, results["cuda"][name], strict=True):
            assert other.epoch.loss == pytest.approx(one.epoch.loss, rel=1e-4), name
            assert other.epoch[3:] == pytest.approx(one.epoch[3:], abs=0.02), name


def test_a_diverged_run_is_not_a_number_and_leaves_the_others_alone() -> None:
    calm = {"a": a_run("b-sgd", rate=1e-3), "b": a_run("sm", rate=1e-3), "c": a_run("un", rate=1e-3)}
    wild = {**calm, "a": a_run("b-sgd", rate=1e30)}
    network = lambda: arch1(2, inputs=PIXELS, width=64, classes=4)  # noqa: E731
    data = small_data(torch.float32)
    expected, results = (train(Ensemble(r, network, data, batch=30, device="cuda")) for r in (calm, wild))
    assert not math.isfinite(results["a"][-1].epoch.loss)
    assert results["b"] == expected["b"]
    assert results["c"] == expected["c"]


def test_ensembles_in_flight_together_give_what_they_give_alone() -> None:
    expected = train(ensemble_on("cuda"))
    ensembles = [ensemble_on("cuda"), ensemble_on("cuda")]
    results = [{name: [] for name in runs()} for _ in ensembles]
    while any(ensemble.is_running for ensemble in ensembles):
        for ensemble in ensembles:
            ensemble.start_epoch()
        for ensemble, those in zip(ensembles, results, strict=True):
            for name, result in ensemble.train_epoch().items():
                those[name].append(result)
    assert results == [expected, expected]

"""Ensembles on a GPU: recorded steps train as the CPU does, and a saved ensemble goes on bit for bit."""

import copy
import io
import math
import time
from collections.abc import Callable, Iterable
from typing import cast

import pytest
import torch

from symoptim.ensemble.ensemble import Ensemble
from symoptim.ensemble.fast.fused_group import FusedGroup
from symoptim.ensemble.images import Batch
from symoptim.ensemble.registry import UPDATES, Full, Pure
from symoptim.ensemble.run import Bold, EarlyStopping, FixedEpochs, Run
from symoptim.ensemble.trainer import Trainer
from symoptim.models import PairwiseNetwork, arch1, arch2
from symoptim.models.pairwise import HiddenLayer
from symoptim.support.devices import full_float32
from symoptim.support.seeds import permutations
from tests.support.small import PIXELS, a_run, small_data, small_network, train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


PAPERS = ("b-sgd", "sm", "un")
REPEATABLE = [name for name, update in UPDATES.items() if not isinstance(update, Full)]
"""On CUDA, sums of the full metric are taken in any order."""


def runs(updates: Iterable[str] = UPDATES) -> dict[str, Run]:
    early = EarlyStopping(minimum=2, maximum=5, lookback=2)
    return {
        f"{update}-{seed}": a_run(update, seed=seed, schedule=Bold(), stopping=stopping)
        for update in updates
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


def of_any_update() -> Ensemble:
    network = small_network("arch2", torch.float32)
    return Ensemble(runs(REPEATABLE), network, small_data(torch.float32), batch=30, device="cuda")


def by_kernels() -> Ensemble:
    pytest.importorskip("triton", reason="needs Triton")
    network = lambda: arch2(2, inputs=PIXELS, classes=4)  # noqa: E731
    ensemble = Ensemble(runs(PAPERS), network, small_data(torch.float32), batch=30, device="cuda")
    assert isinstance(ensemble.trainer.groups[0], FusedGroup)
    return ensemble


@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize("make", [of_any_update, by_kernels])
def test_training_taken_up_from_a_saved_state_goes_on_bit_for_bit(
    make: Callable[[], Ensemble], stop: int
) -> None:
    expected = train(make())
    first, second = make(), make()
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


def distance_to_kinks(trainer: Trainer, batch: Batch) -> torch.Tensor:
    """How near a feature of a run is to zero, or to the other of its pair, where gradients jump: ``(r,)``."""
    images, _ = trainer.images.at(batch.index)
    smallest: list[torch.Tensor] = []
    for row, state in enumerate(trainer.stack.network_states(range(len(images)))):
        network = copy.deepcopy(trainer.stack.template).train()
        network.load_state_dict(state)
        gaps: list[torch.Tensor] = []
        features = images[row].cpu()
        for layer in cast("PairwiseNetwork", network).hidden:
            hidden = cast("HiddenLayer", layer)
            left, right = hidden.norm(hidden.filters(features)).unflatten(1, (-1, 2)).unbind(2)
            larger = torch.maximum(left, right)
            gaps += [larger.abs().min(), (left - right).abs()[larger > 0].min()]
            features = larger.relu()
        smallest.append(torch.stack(gaps).min())
    return torch.stack(smallest).to(images.device)


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("make", [arch1, arch2])
def test_every_step_of_the_kernels_is_that_of_float64(
    make: Callable[..., PairwiseNetwork], depth: int
) -> None:
    # From the same weights: what one step rounds, twenty may turn into another path.
    pytest.importorskip("triton", reason="needs Triton")
    planned = [a_run(update, seed=seed, rate=1e-3) for update in PAPERS for seed in range(4)]
    exact, rounded = (
        Trainer(
            planned,
            lambda dtype=dtype: make(depth, inputs=PIXELS, classes=4).to(dtype),
            small_data(dtype),
            batch=30,
            device=torch.device("cuda"),
        )
        for dtype in (torch.float64, torch.float32)
    )
    assert isinstance(rounded.groups[0], FusedGroup)
    compared = 0
    for start in range(0, 200, 30):
        for mine, theirs in zip(tensors_of(rounded), tensors_of(exact), strict=True):
            mine.copy_(theirs)
            theirs.copy_(mine)
        size = min(30, 200 - start)
        batch = Batch(exact.images.train, torch.tensor([start]).cuda(), torch.arange(size).cuda())
        same = distance_to_kinks(exact, batch) > 1e-5  # the others may end on either side of a kink
        compared += int(same.sum())
        for trainer in (exact, rounded):
            trainer.totals.clear()
            with full_float32():
                trainer.groups[0].step(batch)
        torch.testing.assert_close(rounded.totals.loss[same], exact.totals.loss[same], rtol=1e-5, atol=1e-6)
        for mine, theirs in zip(tensors_of(rounded), tensors_of(exact), strict=True):
            torch.testing.assert_close(mine[same], theirs[same].to(mine.dtype), rtol=1e-4, atol=1e-6)
    assert compared > 50  # of 84


def tensors_of(trainer: Trainer) -> list[torch.Tensor]:
    """All that a step may change."""
    return [
        tensor.detach() for tensor in (*trainer.stack.parameters.values(), *trainer.stack.buffers.values())
    ]


def test_a_diverged_run_is_not_a_number_and_leaves_the_others_alone() -> None:
    calm = {"a": a_run("b-sgd", rate=1e-3), "b": a_run("sm", rate=1e-3), "c": a_run("un", rate=1e-3)}
    wild = {**calm, "a": a_run("b-sgd", rate=1e30)}
    network = lambda: arch1(2, inputs=PIXELS, width=64, classes=4)  # noqa: E731
    data = small_data(torch.float32)
    expected, results = (train(Ensemble(r, network, data, batch=30, device="cuda")) for r in (calm, wild))
    assert not math.isfinite(results["a"][-1].epoch.loss)
    assert results["b"] == expected["b"]
    assert results["c"] == expected["c"]


@pytest.mark.parametrize("make", [of_any_update, by_kernels])
def test_ensembles_in_flight_together_give_what_they_give_alone(make: Callable[[], Ensemble]) -> None:
    expected = train(make())
    ensembles = [make(), make()]
    results = [{name: [] for name in expected} for _ in ensembles]
    while any(ensemble.is_running for ensemble in ensembles):
        for ensemble in ensembles:
            ensemble.start_epoch()
        for ensemble, those in zip(ensembles, results, strict=True):
            while not ensemble.is_ready():
                time.sleep(1e-4)
            for name, result in ensemble.train_epoch().items():
                those[name].append(result)
    assert results == [expected, expected]

"""Several threads at once: all find what there is, and the process is as it was."""

import logging
import random
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry.discover import discover
from symoptim.symmetry.environment import quietly
from symoptim.symmetry.eps_effect import eps_effect_of
from symoptim.symmetry.recorder import Earlier


class Branching(nn.Module):
    """Cannot be exported: torch prints what it has of its graph, and logs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x))
        return self.second(hidden * 2 if hidden.sum() > 1 else hidden)


class Drawing(nn.Module):
    """Draws from every generator, and gives other threads the time to do so in between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        factor = random.uniform(1, 2) * float(np.random.uniform(1, 2))
        time.sleep(0.002)
        drawn = torch.rand(4) * random.uniform(1, 2) * float(np.random.uniform(1, 2))
        return self.second(torch.relu(self.first(x)) * drawn * factor)


def generators() -> tuple[Any, ...]:
    kind, numbers, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), (kind, list(numbers), *rest)


def state() -> tuple[Any, ...]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = [handler for one in loggers for handler in getattr(one, "handlers", ())]
    return (
        sys.stdout,
        sys.stderr,
        warnings.showwarning,
        list(warnings.filters),
        logging.root.manager.disable,
        [list(handler.filters) for handler in [*handlers, logging.lastResort]],
        [getattr(one, "level", None) for one in loggers],
        generators(),
    )


def test_eight_threads_find_what_one_does_and_leave_the_process_as_it_was() -> None:
    wide = [nn.Sequential(nn.Linear(3, k), nn.ReLU(), nn.Linear(k, 2)) for k in range(2, 10)]
    models = [model for pair in zip(wide, [Branching() for _ in wide], strict=True) for model in pair]
    x = torch.rand(5, 3)
    discover(Branching(), (x,), vouch="*")  # torch loads parts of itself
    before = state()
    with ThreadPoolExecutor(8) as pool:
        specs = list(pool.map(lambda model: discover(model, (x,), vouch="*"), models))
    assert [len(spec) for spec in specs] == [number for k in range(2, 10) for number in (k, 0)]
    assert [bool(spec.recorded) for spec in specs] == [isinstance(model, Branching) for model in models]
    assert state() == before


def test_threads_that_certify_have_one_verdict_and_leave_the_generators_as_they_were() -> None:
    model, x = Drawing(), torch.rand(5, 3)
    spec = discover(model, (x,), vouch="*")
    assert len(spec) == 4
    alone, before = spec.certify(model, (x,)), generators()
    assert alone.holds
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: spec.certify(model, (x,)), range(8)))
    assert generators() == before
    assert found == [alone] * 8


def test_threads_that_measure_eps_find_what_one_does() -> None:
    model, x = nn.Sequential(Drawing(), nn.RMSNorm(2), nn.Linear(2, 2)), torch.rand(5, 3)
    spec = discover(model, (x,), vouch="*")
    assert spec.approximate
    before, element = generators(), spec.random(spread=0.1)

    def measured(_: int) -> float:
        felt = eps_effect_of(spec, model, None)
        assert felt is not None
        return felt.change(element)

    alone = measured(0)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(measured, range(16)))
    assert generators() == before
    assert found == [alone] * 16


@pytest.mark.slow
def test_a_model_in_eight_threads_is_left_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    before = {name: (id(tensor), tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    with ThreadPoolExecutor(8) as pool:
        specs = list(pool.map(lambda _: discover(model, (torch.rand(5, 3),), vouch="*"), range(8)))
    assert len({spec.to_json() for spec in specs}) == 1
    for name, tensor in model.state_dict(keep_vars=True).items():
        assert id(tensor) == before[name][0]
        assert torch.equal(tensor, before[name][1])


def test_a_model_that_another_thread_trains_meanwhile_is_not_disturbed() -> None:
    model, x, done = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.rand(5, 3), threading.Event()
    weights = [one.detach().clone() for one in model.parameters()]
    failures: list[BaseException] = []

    def train() -> None:
        while not done.is_set():
            try:
                model(x).sum().backward()
            except BaseException as failure:
                failures.append(failure)

    found = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    before = generators()
    other = threading.Thread(target=train)
    other.start()
    try:
        spec = discover(found, (x,))
        assert spec.certify(found, (x,)).holds
    finally:
        done.set()
        other.join()
    assert not failures
    assert len(spec) == 4
    assert generators() == before
    assert all(map(torch.equal, model.parameters(), weights))


def test_another_thread_may_make_tuples_meanwhile() -> None:
    """A tuple that is being filled must not be held by anybody else: CPython raises a SystemError then."""
    done, failures = threading.Event(), list[BaseException]()

    def fill() -> None:
        while not done.is_set():
            try:
                tuple(number for number in range(1000))
            except BaseException as failure:
                failures.append(failure)

    other = threading.Thread(target=fill)
    other.start()
    try:
        for _ in range(4):
            Earlier()
    finally:
        done.set()
        other.join()
    assert not failures


def test_what_torch_says_meanwhile_is_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    discover(Branching(), (torch.rand(5, 3),), vouch="*")
    discover(nn.LSTM(3, 4), (torch.rand(5, 2, 3),))
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_what_other_threads_say_meanwhile_is_heard(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def speak() -> None:
        sys.stderr.write("printed")
        logging.getLogger("torch.other").error("logged")
        try:
            warnings.warn("warned", stacklevel=1)  # an error in these tests
        except UserWarning as warning:
            heard.append(str(warning))

    with quietly():
        other = threading.Thread(target=speak)
        other.start()
        other.join()
        speak()
    assert heard == ["warned"]
    assert capsys.readouterr().err == "printedprinted"
    assert [record.message for record in caplog.records] == ["logged"]


def test_nothing_of_ours_swallows_anything_afterwards() -> None:
    filters = list(warnings.filters)
    with quietly():
        copied = list(warnings.filters)  # as catch_warnings does, to bring them back later
    assert list(warnings.filters) == filters
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warnings, "filters", copied)
        with pytest.raises(UserWarning, match="heard"):
            warnings.warn("heard", stacklevel=1)


def test_nothing_of_the_process_is_replaced_meanwhile() -> None:
    """Other threads may have their own way with these at the same time."""
    seen: list[tuple[Any, ...]] = []

    class Looking(Branching):
        def forward(self, x: Tensor) -> Tensor:
            seen.append((sys.stdout, sys.stderr, warnings.showwarning))
            return super().forward(x)

    before = (sys.stdout, sys.stderr, warnings.showwarning)
    discover(Looking(), (torch.rand(5, 3),), vouch="*")
    assert set(seen) == {before}


def test_a_failure_leaves_the_process_as_it_was() -> None:
    before = state()
    with pytest.raises(KeyError), quietly():
        raise KeyError
    assert state() == before

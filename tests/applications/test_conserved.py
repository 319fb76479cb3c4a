"""Conserved quantities: their drift is of first order in the rate, and nothing else is conserved."""

import copy
import dataclasses
import functools
import math

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

from symoptim.applications.conserved import ConservedQuantities
from symoptim.errors import OptionError, SymmetryError
from symoptim.symmetry.discover import discover
from symoptim.symmetry.spec import SymmetrySpec
from tests.support.oracle import exact

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.randn(20, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)]
    return exact(nn.Sequential(*layers))  # an eps that is felt would be a drift of its own


@functools.cache
def group() -> SymmetrySpec:
    return discover(network(), (X,))


def descend(model: nn.Module, optimizer: Optimizer, steps: int) -> None:
    """Steps with the whole batch."""
    for _ in range(steps):
        optimizer.zero_grad()
        (model(X) - Y).square().mean().backward()
        optimizer.step()


def watched(spec: SymmetrySpec, *, lr: float, time: float = 1.0, **options: float) -> ConservedQuantities:
    """A run of a length in time: rate times steps."""
    model = network()
    optimizer = SGD(model.parameters(), lr=lr, **options)
    quantities = ConservedQuantities(model, spec, every=10).attach(optimizer)
    descend(model, optimizer, round(time / lr))
    return quantities


def largest(quantities: ConservedQuantities) -> float:
    return float(quantities.drift()[-1].max())


def test_the_drift_of_gradient_descent_is_of_first_order_in_the_rate() -> None:
    spec = group()
    coarse, fine = (largest(watched(spec, lr=lr)) for lr in (1e-2, 1e-3))
    assert 1e-5 < coarse < 0.05
    assert coarse / fine == pytest.approx(10, rel=0.2)


def test_along_a_direction_that_is_no_symmetry_nothing_is_conserved() -> None:
    spec = group()
    values = torch.randn(len(spec.exponents.values), dtype=torch.float64)
    false = dataclasses.replace(spec, exponents=spec.exponents._replace(values=values))
    coarse, fine = (largest(watched(false, lr=lr)) for lr in (1e-2, 1e-3))
    assert fine > 0.02
    assert coarse / fine == pytest.approx(1, rel=0.2)


def test_momentum_and_weight_decay_show() -> None:
    spec = group()
    plain = largest(watched(spec, lr=1e-3))
    assert largest(watched(spec, lr=1e-3, momentum=0.9)) > 5 * plain
    assert largest(watched(spec, lr=1e-3, weight_decay=0.1)) > 5 * plain


def test_records_are_those_of_the_formula_at_the_steps_asked_for() -> None:
    model = network()
    spec, optimizer = group(), SGD(model.parameters(), lr=0.1)
    quantities = ConservedQuantities(model, spec, every=3).attach(optimizer)
    descend(model, optimizer, 7)
    assert quantities.steps == [0, 3, 6]
    quantities.detach()
    descend(model, optimizer, 3)
    assert quantities.values.shape == (3, len(spec))
    quantities.clear()
    squares = {name: p.detach().square() for name, p in model.named_parameters() if name in spec.tensors}
    assert quantities.steps == [0]
    assert torch.equal(quantities.values[0], spec.charges(squares))


def test_memory_is_bounded_by_keeping_every_second_record() -> None:
    model = network()
    spec, optimizer = group(), SGD(model.parameters(), lr=0.01)
    quantities = ConservedQuantities(model, spec, limit=4).attach(optimizer)
    descend(model, optimizer, 13)
    assert quantities.steps == [0, 4, 8, 12]
    assert quantities.curve().steps == quantities.steps
    assert [float(row.max()) for row in quantities.drift()] == quantities.curve().largest


def test_what_a_frozen_tensor_takes_part_in_is_not_conserved() -> None:
    model, spec = network(), group()
    assert bool(ConservedQuantities(model, spec).conserved.all())
    frozen = copy.deepcopy(model)
    frozen[5].weight.requires_grad_(False)
    assert int(ConservedQuantities(frozen, spec).conserved.sum()) == len(spec) - 4
    model.eval()
    reading = ConservedQuantities(model, discover(model, (X,)))  # of the running statistics
    assert 0 < int(reading.conserved.sum()) < len(reading.conserved)


def test_what_the_attached_optimizers_do_not_train_is_not_conserved() -> None:
    model, spec = network(), group()
    rest = [p for p in model.parameters() if p is not model[5].weight]
    one, other = SGD(rest, lr=0.1), SGD([model[5].weight], lr=0.1)
    quantities = ConservedQuantities(model, spec)
    assert int(quantities.conserved.sum()) == len(spec)
    assert int(quantities.attach(one).conserved.sum()) == len(spec) - 4
    assert int(quantities.attach(other).conserved.sum()) == len(spec)  # the two together train all
    quantities.detach()
    quantities.attach(one).detach()
    quantities.attach(SGD(model.parameters(), lr=0.1))
    assert int(quantities.conserved.sum()) == len(spec) - 4  # nobody brings back what was lost
    quantities.clear()
    assert int(quantities.conserved.sum()) == len(spec)


def test_the_optimizer_inside_a_wrapper_is_attached() -> None:
    class Wrapper(Optimizer):  # as Accelerate makes it
        def __init__(self, optimizer: Optimizer) -> None:
            self.optimizer = optimizer

    model = network()
    optimizer = SGD(model.parameters(), lr=0.01)
    quantities = ConservedQuantities(model, group()).attach(Wrapper(optimizer))
    descend(model, optimizer, 3)
    assert quantities.steps == [0, 1, 2, 3]


def test_a_second_record_of_a_step_replaces_the_first() -> None:
    model = network()
    spec, optimizer = group(), SGD(model.parameters(), lr=0.1)
    quantities = ConservedQuantities(model, spec, limit=3).attach(optimizer)
    with torch.no_grad():
        model[5].weight.mul_(2)
    quantities.record()
    fresh = ConservedQuantities(model, spec).attach(optimizer)
    assert quantities.steps == [0]
    assert torch.equal(quantities.values, fresh.values)
    descend(model, optimizer, 2)
    quantities.record()
    assert quantities.steps == [0, 1, 2]  # and the limit is not exceeded
    assert torch.equal(quantities.drift(), fresh.drift())


def test_clearing_brings_back_the_distance_of_records() -> None:
    model = network()
    spec, optimizer = group(), SGD(model.parameters(), lr=0.01)
    quantities = ConservedQuantities(model, spec, every=2, limit=3).attach(optimizer)
    descend(model, optimizer, 8)
    assert quantities.every > 2
    quantities.clear()
    descend(model, optimizer, 4)
    assert (quantities.every, quantities.steps) == (2, [0, 2, 4])


def test_a_run_that_diverges_is_recorded_and_none_begins_so() -> None:
    model = network()
    spec, optimizer = group(), SGD(model.parameters(), lr=0.01)
    quantities = ConservedQuantities(model, spec).attach(optimizer)
    descend(model, optimizer, 1)
    with torch.no_grad():
        model[5].weight[0, 0] = torch.nan
    descend(model, optimizer, 1)
    assert quantities.steps == [0, 1, 2]
    assert [math.isfinite(value) for value in quantities.curve().largest] == [True, True, False]
    with pytest.raises(SymmetryError, match="not finite"):
        quantities.clear()


def test_a_network_without_symmetries_has_an_empty_drift() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    curve = ConservedQuantities(model, discover(model, (X,))).curve()
    assert (curve.steps, curve.median, curve.largest) == ([0], [0.0], [0.0])


@pytest.mark.parametrize(("every", "limit"), [(0, 10), (1, 1)])
def test_options_that_make_no_sense_are_refused(every: int, limit: int) -> None:
    with pytest.raises(OptionError, match="every must be 1 or more and limit 2 or more"):
        ConservedQuantities(network(), group(), every=every, limit=limit)

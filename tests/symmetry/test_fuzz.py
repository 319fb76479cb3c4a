"""Random networks against discovery: whatever the graph, nothing false is found; and a false rule is."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, find, given, settings

from symoptim.symmetry.discover import discover
from symoptim.symmetry.form import Form
from symoptim.symmetry.rules.registry import RULES, Context
from tests.support.oracle import true_dimension
from tests.support.random_networks import Network, arguments_of, networks
from tests.support.soundness import changes

pytestmark = pytest.mark.filterwarnings("ignore")
Case = tuple[Network, str]

quick = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
thorough = settings(quick, derandomize=False, max_examples=600, print_blob=True)


def finds_what_is_false(case: Case) -> bool:
    """Whether an element of the group that is found changes outputs, at most weights that are tried.

    Not at a single draw of weights: a maximum of two equal numbers may go to either by rounding.
    """
    network, kind = case
    spec = discover(network, arguments_of(kind, 1))
    changed = 0
    for seed in range(3):
        network.draw(seed)
        changed += changes(spec, network, arguments_of(kind, seed))
    return changed >= 2


@settings(quick, max_examples=10)
@given(networks())
def test_no_element_of_the_group_changes_an_output(case: Case) -> None:
    assert not finds_what_is_false(case)


@pytest.mark.slow
@thorough
@given(networks(most=9))
def test_no_element_of_the_group_changes_an_output_of_thousands(case: Case) -> None:
    assert not finds_what_is_false(case)


@pytest.mark.slow
@settings(quick, max_examples=10)
@given(networks(most=4))
def test_no_more_is_found_than_is_true(case: Case) -> None:
    network, kind = case
    assume(not dict(network.named_buffers()))
    arguments = arguments_of(kind, 1)
    assume(network(*arguments)[0].requires_grad)
    shape, tokens = arguments[0].shape, arguments[1]

    def inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        return torch.randn(shape, generator=generator, dtype=torch.float64), tokens

    assert len(discover(network, arguments)) <= true_dimension(network, inputs)


def passes_through(context: Context, form: Form, *_: Any, **__: Any) -> Form:
    """Says that an operation lets any scale through."""
    return Form(context.shape, context.system.settle(form).terms)


def takes_the_first(context: Context, form: Form, *_: Any, **__: Any) -> Form:
    """Says that of a sum over an axis only its first element counts."""
    (term,) = context.system.single(form).terms or (torch.zeros((), dtype=torch.int64),)
    return Form(context.shape, (term.reshape(-1)[:1].reshape([1] * len(context.shape)),))


FALSE_RULES: dict[str, tuple[str, Callable[..., Form]]] = {
    "gelu": ("activation", passes_through),
    "add": ("two values", passes_through),
    "sum": ("reduction", takes_the_first),
    "softmax": ("attention", passes_through),
}


@pytest.mark.parametrize(
    "name", ["add", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gelu", "sum", "softmax"))]
)
def test_a_false_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, rule = FALSE_RULES[name]
    searched = settings(quick, max_examples=200, phases=[Phase.generate])
    monkeypatch.setitem(RULES, name, rule)
    network, _ = find(networks([kind], most=2), finds_what_is_false, settings=searched)
    assert name in repr(network) or "+" in repr(network)

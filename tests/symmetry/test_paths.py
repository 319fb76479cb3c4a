"""Paths that the example does not take: rescaled copies agree there too, or the group is smaller."""

import copy
import logging
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from symoptim import SymmetrySpec, discover
from symoptim.errors import OptionError, PathWarning
from symoptim.symmetry.frames import crossings
from symoptim.symmetry.graph import Graph
from symoptim.symmetry.paths import survey
from symoptim.symmetry.variations import Call
from tests.support.sampling import one_in


def block(width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, width))


class Experts(nn.Module):
    """Every row goes to one expert; experts without a row are not called."""

    def __init__(self, count: int = 8) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(4), nn.Linear(4, count, bias=False)
        self.experts = nn.ModuleList(block() for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        chosen = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = chosen == number
            if mine.any():
                out[mine] = expert(x[mine])
        return out


class Branch(nn.Module):
    """An ``if`` on values, beside a network that both ways call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = Residual(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.last(self.inner(x))
        return h if x.sum() > 0 else self.last(torch.tanh(h))


class Windows(nn.Module):
    """Takes whole windows of four steps alone, and a single one by another path."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x).unflatten(1, (-1, 4))
        return self.down(h.relu() if h.shape[1] > 1 else h.tanh())


class Blocks(nn.Module):
    """Means of pairs of eight steps: at four steps, of pairs of two rows together, by the same operations."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x).relu().transpose(1, 2)
        h = h.reshape(-1, 6, 4, 2).mean(-1).transpose(1, 2)
        return self.down(h)


class Padded(nn.Module):
    """Fills up places to windows of four."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner = nn.Embedding(9, 4), nn.Linear(4, 4)

    def forward(self, ids: Tensor) -> Tensor:
        missing = -ids.shape[1] % 4
        if missing > 0:
            ids = nn.functional.pad(ids, (0, missing), value=1)
        return self.inner(self.table(ids)).relu()


class Checked(nn.Module):
    """A network whose inputs are checked by their values first, so that torch cannot follow its sizes."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        if not bool(torch.isfinite(x).all()):
            raise ValueError("inputs must be finite")
        return self.inner(x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


class LayerDrop(nn.Module):
    """Layers that are left out at random, or by what Python counts."""

    def __init__(self, draw: Callable[["LayerDrop"], Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Residual() for _ in range(3))
        self.draw, self.calls = draw, 0

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            self.calls += 1
            x = torch.relu(layer(x)) if self.draw(self) < 0.5 else torch.tanh(layer(x))
        return x


DRAWS: dict[str, Callable[[LayerDrop], Any]] = {
    "random": lambda _: random.random(),
    "numpy": lambda _: np.random.rand(),
    "torch": lambda _: torch.rand(()),
    "counter": lambda model: model.calls % 5 / 5,
}


class Growing(nn.Module):
    """A list that fills: from the third call on the path is another one."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.seen = block(), list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        first, act, last = self.net
        return last(act(first(x)) if len(self.seen) < 3 else torch.tanh(first(x)))


class LongAndShort(nn.Module):
    """Another function for sequences beyond a length."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.one, self.two, self.length = nn.Linear(4, 4), nn.Linear(4, 4), length

    def forward(self, x: Tensor) -> Tensor:
        h = self.one(x)
        return self.two(torch.tanh(h) if x.shape[1] > self.length else torch.relu(h))


class EarlyExit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Residual(), Residual()
        self.exit, self.head = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.one(x)
        if h.abs().mean() > 100:
            return self.exit(torch.tanh(h))
        return self.head(torch.relu(self.two(h)))


class Unused(nn.Module):
    """A token that takes the place of what is masked, where a mask is given."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.token, self.body = nn.Linear(4, 4), nn.Parameter(torch.randn(4)), Residual()
        self.norm = nn.LayerNorm(4, eps=1e-30)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.embed(x)
        h = h if mask is None else torch.where(mask[..., None], self.token, h)
        return self.norm(self.body(h))


def found(model: nn.Module, *inputs: Tensor, **options: Any) -> SymmetrySpec:
    """What is discovered; there has to be a warning."""
    with pytest.warns(PathWarning, match="other paths"):
        return discover(model, inputs, **options)


def largest_change(model: nn.Module, spec: SymmetrySpec, calls: list[tuple[Tensor, ...]]) -> float:
    """Of outputs, by three rescalings."""
    model = copy.deepcopy(model).double()
    worst = 0.0
    for seed in range(3):
        scaled = spec.rescale_(copy.deepcopy(model), spec.random(seed=seed, spread=2.0))
        pair = [copy.deepcopy(model), scaled]
        for call in calls:
            outputs: list[Tensor] = []
            for one in pair:
                random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
                outputs.append(one(*call).detach())
            worst = max(worst, float((outputs[0] - outputs[1]).abs().max() / outputs[0].abs().max()))
    return worst


def rows(*shape: int, times: float = 1.0) -> Tensor:
    return times * torch.randn(*shape, dtype=torch.float64)


def test_experts_that_got_no_row_are_named_and_what_they_read_is_pinned() -> None:
    torch.manual_seed(0)
    model = Experts()
    spec = found(model, torch.rand(2, 4))
    assert any(name.startswith("experts.") for name in spec.unreached)
    assert largest_change(model, spec, [(rows(64, 4),), (rows(64, 4, times=5),)]) < 1e-12


def test_without_the_survey_the_experts_would_be_a_lie() -> None:
    torch.manual_seed(0)
    model = Experts()
    spec = discover(model, (torch.rand(2, 4),), vouch="*")  # a false promise
    assert largest_change(model, spec, [(rows(64, 4),)]) > 1e-2


def test_more_examples_and_a_promise_give_the_experts_back() -> None:
    torch.manual_seed(0)
    model = Experts(3)
    spec = discover(model, (torch.rand(2, 4),), inputs=[torch.randn(256, 4)], vouch=["*"])
    assert not spec.unreached
    # Hidden units of every expert, gains of the norm, the router as a whole.
    assert len(spec) == 3 * 6 + 4 + 1
    assert largest_change(model, spec, [(rows(64, 4),)]) < 1e-12


def test_both_ways_of_a_branch_on_values_are_seen() -> None:
    model = Branch()
    spec = discover(model, (torch.rand(5, 4),))
    assert len(spec) == 6  # hidden units of the inner block
    assert any("every path" in sentence for sentence in spec.paths)
    assert largest_change(model, spec, [(rows(5, 4),), (-rows(5, 4).abs(),), (rows(5, 4).abs(),)]) < 1e-12


def test_a_branch_that_no_variation_takes_is_pinned_too() -> None:
    model = EarlyExit()
    spec = found(model, torch.rand(5, 4))
    assert len(spec) == 12
    assert {"exit.weight", "exit.bias"} == set(spec.unreached)
    assert largest_change(model, spec, [(rows(5, 4),), (rows(5, 4, times=1e4),)]) < 1e-12


@pytest.mark.parametrize("kind", one_in(2, DRAWS))
def test_chance_and_counters_are_noticed(kind: str) -> None:
    model = LayerDrop(DRAWS[kind])
    spec = found(model, torch.rand(5, 4))
    assert len(spec) == 3 * 6
    assert any("decide" in sentence for sentence in spec.paths)
    assert largest_change(model, spec, [(rows(5, 4),) for _ in range(8)]) < 1e-12


def test_a_list_that_fills_is_noticed_and_the_model_is_left_alone() -> None:
    model = Growing()
    spec = found(model, torch.rand(5, 4))
    assert not len(spec)
    assert not model.seen


@pytest.mark.parametrize("length", [9, 100, 1000])
def test_lengths_at_which_the_path_changes_are_found_and_tried(length: int) -> None:
    model = LongAndShort(length)
    spec = discover(model, (torch.rand(2, 8, 4),))
    assert not len(spec)
    assert any("sizes of the inputs decide" in sentence for sentence in spec.paths)
    assert len(discover(model, (torch.rand(2, length + 1, 4),))) == 0


def test_multiples_are_tried_where_other_lengths_are_refused() -> None:
    model = Checked(Windows())
    spec = found(model, torch.rand(2, 8, 4))
    assert any("sizes of the inputs decide" in sentence for sentence in spec.paths)
    assert largest_change(model, spec, [(rows(2, 4, 4),), (rows(2, 12, 4),)]) < 1e-12


def test_sizes_at_which_reshaping_mixes_other_axes_are_seen() -> None:
    model = Blocks()
    spec = discover(model, (torch.rand(2, 8, 4),))
    assert any("sizes of the inputs decide" in sentence for sentence in spec.paths)
    assert largest_change(model, spec, [(rows(2, 4, 4),), (rows(2, 8, 4),)]) < 1e-12


def test_what_torch_logs_of_sizes_that_it_cannot_follow_is_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    discover(Padded(), (torch.randint(1, 9, (2, 6)),))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_length_that_is_too_large_to_be_tried_pins_its_frame() -> None:
    spec = found(LongAndShort(10**8), torch.rand(2, 8, 4))
    assert not len(spec)
    assert "100000001" in spec.paths[0]


def test_a_parameter_of_another_path_pins_what_could_meet_it() -> None:
    torch.manual_seed(0)
    model = Unused()
    spec = found(model, torch.rand(2, 3, 4))
    assert spec.unreached == ("token",)
    mask = torch.rand(2, 3) > 0.5
    assert largest_change(model, spec, [(rows(2, 3, 4),), (rows(2, 3, 4), mask)]) < 1e-12
    free = discover(model, (torch.rand(2, 3, 4),), vouch=["token"])
    assert len(free) == len(spec) + 1  # the residual stream as a whole
    assert largest_change(model, free, [(rows(2, 3, 4), mask)]) > 1e-2


def test_an_ordinary_network_takes_one_path_and_there_is_nothing_to_say() -> None:
    seen = survey(block(), [Call((torch.rand(5, 4),), {})])
    assert (seen.others, seen.unreached, seen.exposed, seen.sentences) == ([], (), frozenset(), ())


def test_generators_of_random_numbers_are_as_they_were() -> None:
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    before = random.random(), np.random.rand(), float(torch.rand(()))
    model = block()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    discover(model, (torch.zeros(5, 4),))
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == before


def test_a_value_is_seen_in_the_frames_between_its_maker_and_its_taker() -> None:
    model = nn.Sequential(block(), block())
    graph = survey(model, [Call((torch.rand(5, 4),), {})]).first
    assert isinstance(graph, Graph)
    called = {"", "0", "1", *(f"{one}.{two}" for one in range(2) for two in range(3))}
    assert crossings(graph, set(), called) == set()
    inside = {
        operation.index for operation in graph.operations if operation.place in ("0.0", "0.1", "1.0", "1.1")
    }
    assert not crossings(graph, {""}, called) & inside
    assert crossings(graph, {"0"}, called) & inside


class BySize(nn.Module):
    """Another activation for other numbers of rows."""

    def __init__(self, is_ordinary: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
        self.is_ordinary = is_ordinary

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x)
        return self.down(h.relu() if self.is_ordinary(x) else h.tanh())


SIZES: dict[str, Callable[[Tensor], bool]] = {
    "len": lambda x: len(x) < 11,
    "equal": lambda x: x.shape[0] == 5,
    "short": lambda x: len(x) > 3,
    "list": lambda x: tuple(x.shape) in ((5, 4),),
}


@pytest.mark.parametrize("kind", one_in(2, SIZES))
def test_sizes_that_torch_takes_as_fixed_are_tried_too(kind: str) -> None:
    spec = discover(BySize(SIZES[kind]), (torch.rand(5, 4),))
    assert not len(spec)
    assert any("sizes of the inputs decide" in sentence for sentence in spec.paths)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_other_sizes_are_exported_where_a_model_cannot_be_recorded() -> None:
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    class Scripted(BySize):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(scripted(x))

    scripted: Any = torch.jit.script(doubled)
    spec = discover(Scripted(SIZES["equal"]), (torch.rand(5, 4),))
    assert not len(spec)
    assert any("sizes of the inputs decide" in sentence for sentence in spec.paths)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vouch": ["expert.*"]}, "names are like 'norm', 'router', 'experts'"),
        ({"vouch": [3]}, "vouch has 3, which is no name"),
    ],
)
def test_promises_that_mean_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        discover(Experts(), (torch.rand(2, 4),), **options)


def test_the_warning_says_what_to_vouch_for() -> None:
    torch.manual_seed(0)
    model = Experts()
    with pytest.warns(PathWarning, match=r'vouch=\["", "experts\.\*\.\*\.weight"'):
        discover(model, (torch.rand(2, 4),))


def test_experts_that_a_pass_under_cond_does_not_reach_are_named_and_pin_all() -> None:
    class Choosing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.expert, self.last = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            scaled = torch.cond(x.sum() > 0, lambda x: 2 * x, lambda x: 3 * x, (x,))
            return self.last(torch.relu(self.first(scaled)))

    with pytest.warns(PathWarning, match=r"no pass reached expert\.weight") as told:
        spec = discover(Choosing(), (torch.rand(5, 3),))
    assert len(told) == 1
    assert spec.unreached == ("expert.weight", "expert.bias")
    assert len(spec) == 0
    with pytest.warns(PathWarning, match="only the path of the example is known"):
        assert len(discover(Choosing(), (torch.rand(5, 3),), vouch=["expert"])) == 4

"""Acting on a model measures how much eps is felt, before anything is changed."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from symoptim.applications.align import align
from symoptim.applications.canonicalize import canonicalize_
from symoptim.errors import EpsWarning, OptionError, SymmetryError
from symoptim.symmetry.discover import discover
from symoptim.symmetry.eps_effect import eps_effect_of
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.trials import difference

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def shrink(layer: nn.Module, times: float) -> None:
    for parameter in layer.parameters():
        parameter.mul_(times)


def normalized(eps: float) -> tuple[nn.Module, SymmetrySpec]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4, eps=min(eps, 1e-3)), nn.Linear(4, 2))
    if eps > 1e-3:  # which is no guard: as large beside smaller weights
        shrink(model[0], (1e-3 / eps) ** 0.5)
    return model, discover(model, (X,))


def assert_unchanged(model: nn.Module, before: nn.Module) -> None:
    pairs = zip(model.state_dict().items(), before.state_dict().values(), strict=True)
    assert all(torch.equal(tensor, old) for (_, tensor), old in pairs)


def test_an_element_along_which_eps_is_felt_is_refused_and_nothing_changes() -> None:
    model, spec = normalized(1.0)
    before = copy.deepcopy(model)
    element = spec.random(spread=2.0)
    words = r"outputs would change by .*, and 1\.0e-03 is accepted: the constant of layer_norm .*tolerance="
    with pytest.raises(SymmetryError, match=words):
        spec.rescale_(model, element)
    assert_unchanged(model, before)
    felt = eps_effect_of(spec, model, None)
    assert felt is not None
    change = felt.change(element)
    spec.rescale_(model, element, tolerance=1.01 * change)
    assert difference([before(X)], [model(X)]) == pytest.approx(change, rel=1e-4)
    spec.rescale_(before, element, tolerance=math.inf)
    assert_unchanged(model, before)


def test_an_element_along_which_eps_is_not_felt_is_accepted() -> None:
    model, spec = normalized(1e-7)
    before = model(X)
    spec.rescale_(model, spec.random(spread=1.0))
    assert difference([before], [model(X)]) < 1e-4


def test_what_is_felt_depends_on_the_inputs() -> None:
    model, spec = normalized(1e-3)
    model = copy.deepcopy(model)
    with torch.no_grad():
        model[0].bias.zero_()
    element = spec.random(spread=0.1)
    with pytest.raises(SymmetryError, match="outputs would change"):
        spec.rescale_(model, element, inputs=(1e-2 * X,))
    with pytest.raises(SymmetryError, match="outputs would change"):
        spec.rescale_(model, element, inputs=[(100 * X,), {"input": 1e-2 * X}])
    spec.rescale_(model, element, inputs=(100 * X,))


def test_without_inputs_nothing_is_checked_and_that_is_said() -> None:
    model, spec = normalized(1.0)
    read = SymmetrySpec.from_json(spec.to_json())
    with pytest.warns(EpsWarning, match=r"was not measured, because there is no example input: give inputs="):
        read.rescale_(model, spec.random())
    with pytest.raises(SymmetryError, match="outputs would change"):
        read.rescale_(model, spec.random(), inputs=(X,))


def test_what_cannot_be_called_is_not_checked_and_that_is_said() -> None:
    model, spec = normalized(1.0)
    with pytest.warns(EpsWarning, match=r"cannot be called \(RuntimeError: .*give inputs="):
        spec.rescale_(model, spec.random(), inputs=(torch.rand(6, 5),))
    with pytest.warns(EpsWarning, match="meta device"):
        spec.rescale_(copy.deepcopy(model).to("meta"), spec.random())


class Failing(nn.Module):
    """Fails in float64, or where weights are scaled, or in evaluation mode."""

    def __init__(self, failure: Exception, when: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.failure, self.when = failure, ""
        self.first, self.norm, self.last = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
        self.spec, self.when = discover(self, (X,), vouch="*"), when
        self.before = self.first.weight[0, 0].item()

    def forward(self, x: Tensor) -> Tensor:
        moved = abs(self.first.weight[0, 0].item() / self.before - 1) > 1e-6 if self.when else False
        conditions = {"wide": x.dtype == torch.float64, "moved": moved, "eval": not self.training}
        if conditions.get(self.when):
            raise self.failure
        return self.last(torch.relu(self.norm(self.first(x))))


NO_MEMORY = [
    MemoryError("no memory"),
    torch.cuda.OutOfMemoryError("no memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate no memory"),
]


@pytest.mark.parametrize("when", ["wide", "moved", "eval"])
@pytest.mark.parametrize("failure", NO_MEMORY, ids=lambda failure: type(failure).__name__)
def test_too_little_memory_is_neither_a_verdict_nor_a_reason_to_go_on(failure: Exception, when: str) -> None:
    model = Failing(failure, when)
    with pytest.raises(type(failure), match="no memory"):
        model.spec.rescale_(model, model.spec.random(spread=0.1), inputs=(X,))
    if when != "eval":  # of which a certificate says that it could not be tried
        with pytest.raises(type(failure), match="no memory"):
            model.spec.certify(model, (X,))


def test_that_evaluation_mode_was_not_measured_is_said() -> None:
    model = Failing(KeyError("never evaluated"), "eval")
    with pytest.warns(
        EpsWarning, match=r"in evaluation mode was not measured, because .*KeyError: 'never ev"
    ):
        model.spec.rescale_(model, model.spec.random(spread=0.1), inputs=(X,))


class Counting(nn.Module):
    """Counts calls, of copies too."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Counting.calls += 1
        return x


def test_where_there_is_no_eps_the_model_is_not_called() -> None:
    model = nn.Sequential(nn.Linear(3, 4), Counting(), nn.ReLU(), nn.Linear(4, 2))
    spec = discover(model, (X,))
    Counting.calls = 0
    spec.rescale_(model, spec.random())
    assert Counting.calls == 0


def test_it_is_measured_in_the_mode_of_the_group() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4, eps=1e-3), nn.ReLU(), nn.Linear(4, 2)
    )
    shrink(model[0], 0.1)
    spec = discover(model, (X,))
    model.eval()
    with torch.no_grad():
        model[1].running_var.fill_(1e6)  # no eps is felt in evaluation mode
    with pytest.raises(SymmetryError, match="outputs would change"):
        spec.rescale_(model, spec.random())
    assert not model.training


def test_where_running_statistics_move_it_is_measured_in_evaluation_mode_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    spec = discover(model, (X,))
    with torch.no_grad():
        model[1].running_var.fill_(1e-5)  # as large as eps, which is nothing beside the batch's
    before = copy.deepcopy(model)
    with pytest.raises(SymmetryError, match="outputs would change"):
        spec.rescale_(model, spec.random())
    assert_unchanged(model, before)
    with pytest.warns(EpsWarning, match="rescalings were not applied"):
        canonicalize_(model, spec)
    with torch.no_grad():
        change = (model.eval()(X) - before.eval()(X)).abs().max() / before(X).abs().max()
    assert float(change) < 1e-3


def test_alignment_refuses_and_leaves_both_models() -> None:
    model, spec = normalized(1.0)
    other = spec.rescale_(copy.deepcopy(model), spec.random(spread=2.0), tolerance=math.inf)
    before = copy.deepcopy(other)
    with pytest.raises(SymmetryError, match="outputs would change"):
        align(model, other, spec)
    assert_unchanged(other, before)
    aligned = align(model, other, spec, tolerance=math.inf)
    torch.testing.assert_close(aligned[0].weight, model[0].weight)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, math.nan])
def test_a_tolerance_is_a_size(tolerance: float) -> None:
    model, spec = normalized(1e-5)
    with pytest.raises(OptionError, match="tolerance must be a number above 0"):
        spec.rescale_(model, spec.random(), tolerance=tolerance)


def test_the_default_eps_of_rms_norm_is_that_of_the_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.RMSNorm(4), nn.Linear(4, 2))
    with torch.no_grad():
        for parameter in model[0].parameters():
            parameter.mul_(1e-4)  # squares of features are as small as the rounding of float32
    spec, before = discover(model, (X,)), model(X)
    changes: list[float] = []
    for one in (model, copy.deepcopy(model).double()):
        felt = eps_effect_of(spec, one, (X.to(one[0].weight),))
        assert felt is not None
        changes.append(felt.change(torch.full((len(spec),), 2.0)))
    assert changes[1] < 1e-6 < 0.1 < changes[0]
    spec.rescale_(model, torch.full((len(spec),), 2.0), tolerance=math.inf)
    assert difference([before], [model(X)]) == pytest.approx(changes[0], rel=1e-3)
    assert spec.certify(model.double(), (X.double(),)).holds

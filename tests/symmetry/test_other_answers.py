"""Who would be told something else if it were decided otherwise."""

import pytest
import torch
from torch import Tensor, nn

from symoptim import discover
from symoptim.errors import PathWarning
from symoptim.symmetry.other_answers import informed_by_other_answers
from symoptim.symmetry.record import Series
from symoptim.symmetry.variations import Call
from tests.support.told_paths import TOLD, Both, Decides


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))


class Sent(nn.Module):
    """Rows go to one of two experts, and back to where they were."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = two_layers(), two_layers()

    def forward(self, x: Tensor) -> Tensor:
        out, up = torch.zeros_like(x), x[:, 0] > 0
        if up.any():
            out[up] = self.up(x[up])
        rows = (~up).nonzero()[:, 0]
        return out.index_add(0, rows, self.down(x[rows]))


class Checked(nn.Module):
    """Refuses what is no number."""

    def __init__(self) -> None:
        super().__init__()
        self.net = two_layers()

    def forward(self, x: Tensor) -> Tensor:
        if not torch.isfinite(x).all():
            raise ValueError
        return self.net(x)


def told_of(model: nn.Module, place: str) -> tuple[set[str], set[str]]:
    found = informed_by_other_answers(model, Call((torch.randn(5, 4),), {}), [place], Series())
    return set(found.modules), set(found.asking)


@pytest.mark.parametrize("kind", [name for name in TOLD if name != "packed steps"])
def test_what_another_module_may_get_to_know_of_is_pinned(kind: str) -> None:
    torch.manual_seed(0)
    with pytest.warns(PathWarning):
        assert len(discover(TOLD[kind].make(), tuple(one.float() for one in TOLD[kind].example))) == 0


def test_sizes_are_told_to_those_who_ask_for_them() -> None:
    model = nn.Sequential(Decides(lambda x: x[x[:, 0] < 9]), Both(lambda x: x, lambda kept: len(kept) < 2))
    modules, asking = told_of(model, "0")
    assert asking == {"1.acts"}
    assert modules == {"1.acts"}


def test_experts_are_told_nothing() -> None:
    assert told_of(nn.Sequential(Sent(), two_layers()), "0")[0] == set()


def test_who_does_not_catch_an_exception_is_told_nothing() -> None:
    assert told_of(nn.Sequential(Checked(), two_layers()), "0")[0] == set()


def test_what_lies_beside_a_decision_keeps_its_symmetries() -> None:
    torch.manual_seed(0)
    with pytest.warns(PathWarning):
        spec = discover(nn.Sequential(two_layers(), Sent(), Checked(), two_layers()), (torch.randn(5, 4),))
    assert len(spec) == 6 * 5


def test_the_model_and_its_state_are_left_alone() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), Decides(lambda x: x[x[:, 0] < 9]), two_layers()).train()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    told_of(model, "1")
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())

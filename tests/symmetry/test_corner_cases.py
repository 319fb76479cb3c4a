"""Uses of operations that are easy to get wrong: what is found has to be true, at whatever cost."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody does
from torch import Tensor, nn

from tests.support.corner_cases import CASES, FREE, HIDDEN, Function, hidden, sound
from tests.support.sampling import one_in


@pytest.mark.parametrize("name", one_in(3, CASES))
@pytest.mark.filterwarnings("ignore")
def test_what_is_found_is_true(name: str) -> None:
    assert len(sound(Function(CASES[name], *HIDDEN))) == FREE.get(name, 0)


class Views(nn.Module):
    """Two parameters that share memory."""

    def __init__(self) -> None:
        super().__init__()
        base = torch.randn(4, 4, dtype=torch.float64)
        self.whole, self.rows = nn.Parameter(base), nn.Parameter(base[1:3])

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x @ self.whole) @ self.rows.t()


class Shared(nn.Module):
    """Two parameters, not one, of the very same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.randn(4, 4, dtype=torch.float64))
        self.other = nn.Parameter(self.one.data)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x @ self.one) @ self.other


class Neighbors(Views):
    """Parameters that are parts of one piece of memory, but share none of it."""

    def __init__(self) -> None:
        super().__init__()
        base = torch.randn(8, 4, dtype=torch.float64)
        self.whole, self.rows = nn.Parameter(base[:4]), nn.Parameter(base[4:])


class Repeated(nn.Module):
    """A parameter whose entries are the same number in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.randn(1, 4, dtype=torch.float64).expand(4, 4))
        self.other = nn.Parameter(torch.randn(4, 2, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x @ self.one) @ self.other


class Looked(nn.Module):
    """Looks at the statistics that batch normalization has just written."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4, eps=1e-30)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.norm(self.linear(x))
        return y, self.norm.running_mean, self.norm.running_var


def batch_norms() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 4),
        nn.BatchNorm1d(4, eps=1e-30, affine=False),
        nn.Linear(4, 4),
        nn.BatchNorm1d(4, eps=1e-30, track_running_stats=False),
    )


def instance_norms() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(5, 4, 1),
        nn.InstanceNorm1d(4, eps=1e-30, affine=True, track_running_stats=True),
        nn.Conv1d(4, 2, 1),
        nn.InstanceNorm1d(2, eps=1e-30),
    )


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(5, 4, mode="mean")
        self.bounded = nn.Embedding(5, 4, max_norm=0.5, padding_idx=0)
        self.head = nn.Linear(4, 5, bias=False)
        self.table = nn.Embedding(5, 4, padding_idx=1)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.bag(tokens)[:, None] + self.bounded(tokens) * self.table(tokens))


MODELS: dict[str, tuple[Callable[[], nn.Module], int | None]] = {
    "parameters that share memory": (Views, 0),
    "parameters of the same memory": (Shared, 0),
    "parameters side by side": (Neighbors, 4),
    "a parameter that repeats itself": (Repeated, 0),
    "statistics that are looked at": (Looked, 0),
    "batch norms": (batch_norms, 12),  # a bias goes with the running mean
    "batch norms in evaluation": (lambda: batch_norms().eval(), None),
    "unused parameters": (lambda: Function(lambda m, x: x * m.p0, (), (3,), (2, 3), (0, 3), (2, 3, 0)), 0),
    "a parameter without entries": (lambda: Function(lambda m, x: F.linear(x, m.p0), (0, 4)), 0),
    "integers as parameters": (
        lambda: Function(lambda m, x: (x + m.zeros) @ m.p0, (4, 4), zeros=torch.zeros(4, dtype=torch.long)),
        0,
    ),
    "a buffer that is zero now": (
        lambda: Function(
            lambda m, x: (hidden(m, x) + m.zeros) @ m.p1, *HIDDEN, zeros=torch.zeros(4, dtype=torch.int32)
        ),
        0,
    ),
    "a floating buffer that is zero now": (
        lambda: Function(
            lambda m, x: (hidden(m, x) + m.zeros) @ m.p1, *HIDDEN, zeros=torch.zeros(4).double()
        ),
        4,
    ),
}


@pytest.mark.parametrize("name", one_in(2, MODELS))
@pytest.mark.filterwarnings("ignore")
def test_what_is_found_in_a_model_is_true(name: str) -> None:
    make, dimension = MODELS[name]
    spec = sound(make().double())
    assert dimension is None or len(spec) == dimension


@pytest.mark.filterwarnings("ignore")
def test_tables_of_tokens() -> None:
    sound(Bags().double(), (torch.randint(5, (3, 2)),))


def test_the_deviation_an_rms_norm_returns_shows_how_long_an_embedding_is() -> None:
    model = Function(
        lambda m, tokens: torch.ops.aten._fused_rms_norm(F.embedding(tokens, m.p0), (4,), None, 1e-30)[1],
        (5, 4),
    )
    assert len(sound(model, (torch.tensor([[0, 1, 2], [2, 3, 4]]),))) == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False])
def test_instance_norms(training: bool) -> None:
    images = torch.randn(2, 5, 3, dtype=torch.float64)
    sound(instance_norms().double().train(training), (images,))


@pytest.mark.parametrize("function", ["relu", "linear", "add"])
def test_an_operation_of_somebody_else_is_not_torchs_of_the_same_name(function: str) -> None:
    library = torch.library.Library("somebody", "FRAGMENT")
    library.define(f"{function}(Tensor x, Tensor y) -> Tensor")
    library.impl(function, lambda x, y: (x + y).tanh(), "CompositeExplicitAutograd")
    odd = getattr(torch.ops.somebody, function)
    model = Function(lambda m, x: odd(F.relu(x @ m.p0), F.relu(x @ m.p0)) @ m.p1, *HIDDEN)
    assert len(sound(model)) == 0

"""Compiled and wrapped models are the model inside, for all that takes a model."""

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import AdamW

from symoptim import (
    ConservedQuantities,
    FullMetricSGD,
    SymmetrySpec,
    align,
    balance_,
    canonicalize_,
    discover,
    equalize_,
    invariant,
    param_groups,
)
from symoptim.errors import OptionError
from symoptim.modules import unwrapped
from symoptim.symmetry.mappings import mappings

WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compiled": lambda model: torch.compile(model, backend="eager"),  # pyright: ignore
    "data parallel": DataParallel,
    "distributed": DistributedDataParallel,
    "compiled in distributed": lambda model: DistributedDataParallel(torch.compile(model, backend="eager")),
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(params=WRAPPERS)
def wrap(request: pytest.FixtureRequest) -> Callable[[nn.Module], nn.Module]:
    return WRAPPERS[request.param]


def network() -> tuple[nn.Module, tuple[Tensor], SymmetrySpec]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    x = (torch.rand(5, 3, dtype=torch.float64),)
    return model, x, discover(model, x)


def weights(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_groups_have_the_names_and_roles_of_the_model_inside(
    wrap: Callable[[nn.Module], nn.Module],
) -> None:
    model, x, _ = network()
    for options in ({}, {"overrides": {"2": "plain"}}, {"example_inputs": x}):
        assert str(param_groups(wrap(model), **options)) == str(param_groups(model, **options))


def test_weights_move_as_those_of_the_model_inside(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model, _, spec = network()
    far = spec.rescale_(copy.deepcopy(model), spec.random(seed=1))
    acts: list[Callable[[nn.Module], object]] = [
        lambda some: spec.rescale_(some, spec.random(seed=2)),
        lambda some: canonicalize_(some, spec),
        lambda some: equalize_(some, spec),
        lambda some: balance_(some, tolerance=math.inf),
    ]
    for act in acts:
        plain, inside = copy.deepcopy(model), copy.deepcopy(model)
        act(plain), act(wrap(inside))
        assert all(map(torch.equal, weights(inside), weights(plain)))
    for aligned in (align(wrap(model), wrap(far), spec), align(model, wrap(far), spec)):
        assert all(map(torch.equal, weights(aligned), weights(align(model, far, spec))))


def test_groups_are_found_tried_and_watched_alike(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model, x, spec = network()
    wrapped = wrap(model)
    assert str(spec.certify(wrapped, x)) == str(spec.certify(model, x))
    found = discover(wrapped, x)
    assert str(found) == str(spec)
    assert mappings(found) == mappings(spec)
    assert ConservedQuantities(wrapped, spec).values.equal(ConservedQuantities(model, spec).values)
    assert ConservedQuantities(wrapped, spec).conserved.all()


def test_optimizers_take_their_parameters_by_the_names_inside(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model, _, spec = network()
    for optimizer in (
        FullMetricSGD(wrap(model), spec, lr=0.1),
        invariant(AdamW, wrap(model), spec=spec, lr=0.1),
    ):
        assert optimizer.param_groups[0]["param_names"] == [name for name, _ in model.named_parameters()]


def test_what_is_no_module_is_refused() -> None:
    model, x, spec = network()
    with pytest.raises(OptionError, match=r"must be an nn\.Module, got OrderedDict"):
        spec.rescale_(model.state_dict(), spec.random())  # pyright: ignore
    with pytest.raises(OptionError, match=r"must be an nn\.Module, got list"):
        spec.certify(list(model), x)  # pyright: ignore
    with pytest.raises(OptionError, match=r"must be an nn\.Module, got list"):
        balance_(list(model))  # pyright: ignore


class Strict(nn.Module):
    """Its own way to names of attributes: a dictionary, with an error of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 2)

    def __getattr__(self, name: str) -> Any:
        return {**self.__dict__["_modules"], **self.__dict__["_parameters"]}[name]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())


def test_a_model_that_looks_up_its_attributes_itself_is_no_obstacle() -> None:
    model = Strict()
    assert unwrapped(model) is model
    assert len(discover(model, (torch.rand(5, 3),))) == 4

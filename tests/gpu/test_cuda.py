"""The same properties on a real device: captured graphs, no host synchronization, half precision."""

import copy
import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from symoptim import BoldDriver, ScaledSGD, UnitNormSGD, invariant, models, param_groups
from symoptim.optim.base import GeometricSGD
from tests.support.infos import make_groups, parameters, set_gradients

pytestmark = [
    # Weights are drawn at random and normalized on purpose where the optimizer is UnitNormSGD.
    pytest.mark.filterwarnings("ignore:UnitNormSGD divides rows:symoptim.errors.GeometryWarning"),
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

OPTIONS = [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
KINDS = [ScaledSGD, UnitNormSGD]


@pytest.mark.parametrize("rate", ["number", "host tensor", "device tensor"])
@pytest.mark.parametrize("foreach", [False, True, None])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_does_not_wait_for_the_device(
    kind: type[GeometricSGD],
    options: dict[str, float],
    dtype: torch.dtype,
    foreach: bool | None,
    rate: str,
    no_synchronization: Callable[[], None],
) -> None:
    groups = make_groups("cuda", dtype)
    lr = 0.01 if rate == "number" else torch.tensor(0.01, device="cuda" if rate == "device tensor" else "cpu")
    optimizer = kind(groups, lr=lr, foreach=foreach, **options)
    set_gradients(groups, 0)
    no_synchronization()
    optimizer.step()
    optimizer.step()


@pytest.mark.parametrize("first", ["eager", "captured"])
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_step_equals_an_eager_one_and_follows_the_schedule(
    kind: type[GeometricSGD], options: dict[str, float], dtype: torch.dtype, foreach: bool, first: str
) -> None:
    eager_groups, captured_groups = make_groups("cuda", dtype), make_groups("cuda", dtype)
    eager = kind(eager_groups, lr=0.01, foreach=foreach, **options)
    captured = kind(captured_groups, lr=0.01, foreach=foreach, capturable=True, **options)
    for groups, optimizer in ((eager_groups, eager), (captured_groups, captured)):
        set_gradients(groups, 0)
        if first == "eager":
            optimizer.step()
    gc.collect()  # the end of an earlier graph would break the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step()
    schedules = BoldDriver(eager), BoldDriver(captured)
    addresses = [p.grad for p in parameters(captured_groups)]
    for seed, loss in enumerate([3.0, 2.0, 4.0, 1.0], start=1):
        set_gradients(eager_groups, seed)
        eager.step()
        for address, p in zip(addresses, parameters(eager_groups), strict=True):
            address.copy_(p.grad)
        graph.replay()
        for schedule in schedules:
            schedule.step(loss)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-2
    for p, q in zip(parameters(eager_groups), parameters(captured_groups), strict=True):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


def bfloat16_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128, bias=False), nn.ReLU(), nn.Linear(128, 10, bias=False)).cuda()


@pytest.mark.parametrize("kind", KINDS)
def test_training_in_bfloat16_follows_training_in_float32(kind: type[GeometricSGD]) -> None:
    """Real bfloat16 products; rates at which most single steps are below the rounding of the weights."""
    generator = torch.Generator("cuda").manual_seed(0)
    images = torch.rand(512, 64, device="cuda", generator=generator)
    labels = torch.randint(10, (512,), device="cuda", generator=generator)
    losses = []
    for dtype in (torch.float32, torch.bfloat16):
        model = bfloat16_network().to(dtype)
        optimizer = kind(param_groups(model), lr=0.05, momentum=0.9)
        for _ in range(300):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(dtype)).float(), labels)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] < 2.2
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_grad_scaler_trains_float16_autocast(kind: type[GeometricSGD]) -> None:
    model = bfloat16_network()
    optimizer = kind(param_groups(model), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**20)
    images, labels = torch.rand(512, 64, device="cuda"), torch.randint(10, (512,), device="cuda")
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def final_scores(make: Callable[[nn.Module], Optimizer], rescale: Callable[[nn.Module], object]) -> Tensor:
    torch.manual_seed(0)
    model = models.arch1(3, inputs=64).double().cuda()
    rescale(model)
    optimizer = make(model)
    generator = torch.Generator("cuda").manual_seed(1)
    images = torch.rand(100, 64, device="cuda", dtype=torch.float64, generator=generator)
    labels = torch.randint(10, (100,), device="cuda", generator=generator)
    for _ in range(50):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels, reduction="sum").backward()
        optimizer.step()
    return model(images).detach()


@pytest.mark.parametrize(
    "make",
    [
        lambda model: ScaledSGD(param_groups(model), lr=1e-3),
        lambda model: invariant(AdamW, param_groups(model), lr=1e-3, fused=True),
        lambda model: invariant(AdamW, param_groups(model), lr=1e-3, foreach=True),
    ],
    ids=["SM", "AdamW fused", "AdamW foreach"],
)
def test_training_does_not_depend_on_the_scaling(make: Callable[[nn.Module], Optimizer]) -> None:
    one = final_scores(make, lambda _: None)
    other = final_scores(make, lambda model: model.rescale_(model.random_scales(seed=2)))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon_in_bfloat16_does_not_depend_on_the_scaling() -> None:
    """By powers of two, which no rounding sees: the two paths agree to the last bit."""

    def by_powers_of_two(model: models.PairwiseNetwork) -> None:
        scales = model.random_scales(seed=2)
        # On the host: the device's power function is not exact even for powers of two.
        model.rescale_(type(scales)(*((2.0 ** s.cpu().log2().round()).to(s) for s in scales)))

    def make(model: nn.Module) -> Optimizer:
        return invariant(torch.optim.Muon, param_groups(model), lr=1e-2)

    one, other = final_scores(make, lambda _: None), final_scores(make, by_powers_of_two)
    assert torch.equal(one, other)


def test_parameters_on_two_devices_may_share_a_group() -> None:
    here, there = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2, device="cuda"))
    optimizer = ScaledSGD([here, there], lr=torch.tensor(0.1))
    for p in (here, there):
        p.grad = torch.ones_like(p)
    optimizer.step()
    torch.testing.assert_close(here, there.cpu())


def test_state_moves_to_the_device_of_the_parameters_it_is_loaded_for() -> None:
    groups, other = make_groups("cpu", torch.bfloat16), make_groups("cuda", torch.bfloat16)
    optimizer = ScaledSGD(groups, lr=0.01, momentum=0.9)
    set_gradients(groups, 0)
    optimizer.step()
    loaded = ScaledSGD(other, lr=0.01, momentum=0.9)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    set_gradients(other, 1)
    loaded.step()
    assert all(value.is_cuda for state in loaded.state.values() for value in state.values())

"""Checks that run in every process of a group; any failure fails the test that spawned them."""

import copy
import itertools
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

from symoptim import (
    FullMetricSGD,
    ScaledSGD,
    SymmetrySpec,
    UnitNormSGD,
    discover,
    invariant,
    param_groups,
)
from symoptim.errors import LayoutError, OptionError, ZeroFilterError
from symoptim.geometry.filters import COLUMNS, ROWS, squared_norm
from symoptim.geometry.scaled import scaled_gradient

MakeOptimizer = Callable[[list[dict]], Optimizer]

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "scaled": lambda groups: ScaledSGD(groups, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    "unit norm": lambda groups: UnitNormSGD(groups, lr=0.05, momentum=0.9, normalize=True),
    "foreach": lambda groups: UnitNormSGD(groups, lr=torch.tensor(0.05), foreach=True, normalize=True),
    "charted": lambda groups: invariant(AdamW, groups, lr=0.01),
}


FULL: dict[str, Callable[[nn.Module, SymmetrySpec], Optimizer]] = {
    "full": lambda model, spec: FullMetricSGD(model, spec, lr=0.05, momentum=0.9, weight_decay=0.1),
    "charted": lambda model, spec: invariant(AdamW, model, spec=spec, lr=0.01),
}


def run(rank: int, world: int, rendezvous: str) -> None:
    """Join the group and run every check."""
    torch.set_num_threads(1)
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    warnings.simplefilter("error")
    # torch's own notes on missing fused kernels and on its deprecated internals
    warnings.filterwarnings("ignore", module=r"torch\.")
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    try:
        mesh = init_device_mesh("cpu", (world,))
        every_layout_gives_the_single_process_result(mesh)
        fully_sharded_training_equals_single_process_training(mesh)
        if world == 3:  # shards of different sizes are the harder case
            the_full_metric_of_a_sharded_model_is_that_of_the_whole(mesh)
        sharding_inside_rows_equals_single_process_training(mesh)
        replicated_training_equals_single_process_training(rank, world)
        a_sharded_optimizer_state_survives_a_distributed_checkpoint(mesh)
        state_that_is_spread_otherwise_is_not_taken_for_its_part(mesh)
        sums_over_a_sharded_axis_do_not_gather_the_weights(mesh)
        layouts_that_make_no_sense_are_refused_by_name(mesh)
        a_zero_row_on_one_rank_is_refused_on_all(mesh)
        rows_of_which_each_rank_has_a_part_are_not_normalized_by_it(rank, world)
        Path(f"{rendezvous}.{rank}").touch()
    finally:
        dist.destroy_process_group()
    end_process()


def end_process() -> None:
    """End without taking the interpreter down, at which a thread of gloo that is still there aborts."""
    os._exit(0)


def run_on_a_grid(rank: int, world: int, rendezvous: str) -> None:
    """Join the group and train with FSDP2 on one axis of a mesh and tensor parallelism on the other."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("data", "tensor"))
    images, labels = wide_batch()
    part = mesh["data"].get_local_rank()
    for make in OPTIMIZERS.values():
        reference, sharded = wide_network(), wide_network()
        parallelize_module(sharded, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(sharded, mesh=mesh["data"])
        fit(reference, make(param_groups(reference)), images, labels)
        fit(sharded, make(param_groups(sharded)), images[part::2], labels[part::2])
        assert_trained_alike(sharded, reference)
    dist.destroy_process_group()
    Path(f"{rendezvous}.{rank}").touch()
    end_process()


def state_that_is_spread_otherwise_is_not_taken_for_its_part(mesh: DeviceMesh) -> None:
    start, gradient, momentum = torch.arange(36.0, dtype=torch.float64).reshape(3, 4, 3).sin()
    found: list[Tensor] = []
    for fused in (None, False):
        weight = nn.Parameter(distribute_tensor(start.clone(), mesh, [Shard(0)]))
        weight.grad = distribute_tensor(gradient, mesh, [Shard(0)])
        optimizer = ScaledSGD([weight], lr=0.1, momentum=0.9, fused=fused)
        optimizer.state[weight]["momentum_buffer"] = distribute_tensor(momentum.clone(), mesh, [Replicate()])
        optimizer.step()
        found.append(weight.detach().full_tensor())
    assert torch.allclose(*found, rtol=1e-13, atol=1e-13)


def sums_over_a_sharded_axis_do_not_gather_the_weights(mesh: DeviceMesh) -> None:
    weight = distribute_tensor(torch.ones(6, 6), mesh, [Shard(0)])
    assert squared_norm(weight, COLUMNS).placements == (Replicate(),)
    assert scaled_gradient(weight, weight, COLUMNS).placements == (Shard(0),)
    assert scaled_gradient(weight, weight, ROWS).placements == (Shard(0),)


def train(optimizer: Optimizer, weight: Tensor, full_gradients: Tensor) -> None:
    for g in full_gradients:
        sharded = isinstance(weight, DTensor)
        weight.grad = (
            distribute_tensor(g.clone(), weight.device_mesh, weight.placements) if sharded else g.clone()
        )
        optimizer.step()


def every_layout_gives_the_single_process_result(mesh: DeviceMesh) -> None:
    """Uneven shards of odd shapes, rows and columns, both axes, with and without a master copy."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 3), (1, 7), (5, 4, 2, 3)]
    placements = [Shard(0), Shard(1), Replicate()]
    for shape, placement in itertools.product(shapes, placements):
        start = torch.randn(shape, generator=generator, dtype=torch.float64)
        gradients = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
        for geometry, axis, dtype in itertools.product(
            ["rows", "columns", "plain"], [0, 1], [torch.float64, torch.bfloat16]
        ):
            for name, make in OPTIMIZERS.items():
                alone = nn.Parameter(start.to(dtype, copy=True))
                shared = nn.Parameter(distribute_tensor(start.to(dtype, copy=True), mesh, [placement]))
                for weight in (alone, shared):
                    optimizer = make([{"params": [weight], "geometry": geometry, "axis": axis}])
                    train(optimizer, weight, gradients.to(dtype))
                tolerance = 1e-12 if dtype is torch.float64 else 0.02
                torch.testing.assert_close(
                    shared.full_tensor(),
                    alone.detach(),
                    rtol=tolerance,
                    atol=tolerance,
                    msg=lambda m, what=(name, geometry, axis, shape, placement): f"{what}: {m}",
                )


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 5, 3),
        nn.ReLU(),
        nn.ConvTranspose2d(5, 7, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(7 * 9, 5),
        nn.LayerNorm(5),
        nn.ReLU(),
        nn.Linear(5, 2),
    ).double()


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(6, 1, 4, 4, generator=generator, dtype=torch.float64)
    return images, torch.arange(6) % 2


def wide_network() -> nn.Module:
    """Sizes that any mesh of ours divides."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 12, bias=False), nn.ReLU(), nn.Linear(12, 6, bias=False)).double()


def wide_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, 12, generator=generator, dtype=torch.float64), torch.arange(6)


def fit(model: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor, steps: int = 5) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def assert_trained_alike(model: nn.Module, reference: nn.Module) -> None:
    for (name, p), q in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(
            full(p).detach(), q.detach(), rtol=1e-10, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}"
        )


def fully_sharded_training_equals_single_process_training(mesh: DeviceMesh) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = batch()
    for make in OPTIMIZERS.values():
        reference, sharded = network(), network()
        for layer in sharded:
            fully_shard(layer, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        fit(reference, make(param_groups(reference)), images, labels)
        fit(sharded, make(param_groups(sharded)), images[rank::world], labels[rank::world])
        assert_trained_alike(sharded, reference)


def the_full_metric_of_a_sharded_model_is_that_of_the_whole(mesh: DeviceMesh) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for make_network, make_batch, axis in ((network, batch, 0), (wide_network, wide_batch, 1)):
        images, labels = make_batch()
        spec = discover(make_network(), (images,))
        for make in FULL.values():
            reference, sharded = make_network(), make_network()
            fully_shard(
                sharded, mesh=mesh, shard_placement_fn=lambda p, axis=axis: Shard(min(axis, p.ndim - 1))
            )
            fit(reference, make(reference, spec), images, labels)
            fit(sharded, make(sharded, spec), images[rank::world], labels[rank::world])
            assert_trained_alike(sharded, reference)


def sharding_inside_rows_equals_single_process_training(mesh: DeviceMesh) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = wide_batch()
    for make in OPTIMIZERS.values():
        reference, sharded = wide_network(), wide_network()
        fully_shard(sharded, mesh=mesh, shard_placement_fn=lambda _: Shard(1))
        fit(reference, make(param_groups(reference)), images, labels)
        fit(sharded, make(param_groups(sharded)), images[rank::world], labels[rank::world])
        assert_trained_alike(sharded, reference)


def replicated_training_equals_single_process_training(rank: int, world: int) -> None:
    images, labels = batch()
    for make in OPTIMIZERS.values():
        reference, replica = network(), network()
        wrapped = DistributedDataParallel(replica)
        fit(reference, make(param_groups(reference)), images, labels)
        fit(wrapped, make(param_groups(wrapped)), images[rank::world], labels[rank::world])
        assert_trained_alike(replica, reference)


def a_sharded_optimizer_state_survives_a_distributed_checkpoint(mesh: DeviceMesh) -> None:
    images, labels = batch()
    for make in OPTIMIZERS.values():
        model = fully_shard(network(), mesh=mesh)
        optimizer = make(param_groups(model))
        fit(model, optimizer, images, labels)
        saved = copy.deepcopy(get_optimizer_state_dict(model, optimizer))
        resumed = fully_shard(network(), mesh=mesh)
        resumed.load_state_dict(model.state_dict())
        resumed_optimizer = make(param_groups(resumed))
        set_optimizer_state_dict(resumed, resumed_optimizer, saved)
        fit(model, optimizer, images, labels)
        fit(resumed, resumed_optimizer, images, labels)
        for p, q in zip(model.parameters(), resumed.parameters(), strict=True):
            torch.testing.assert_close(p.to_local(), q.to_local(), rtol=1e-12, atol=1e-12)


def layouts_that_make_no_sense_are_refused_by_name(mesh: DeviceMesh) -> None:
    partial = nn.Parameter(DTensor.from_local(torch.ones(4, 3), mesh, [Partial()]))
    assert "Partial" in refusal(LayoutError, lambda: ScaledSGD([partial]))
    weight = nn.Parameter(distribute_tensor(torch.ones(6, 6), mesh, [Shard(0)]))
    optimizer = ScaledSGD([weight], lr=0.1)
    weight.grad = distribute_tensor(torch.ones(6, 6), mesh, [Shard(1)])
    before = weight.full_tensor()
    message = refusal(LayoutError, optimizer.step)
    assert "Shard(dim=1)" in message
    assert "Shard(dim=0)" in message
    assert torch.equal(weight.full_tensor(), before)


def a_zero_row_on_one_rank_is_refused_on_all(mesh: DeviceMesh) -> None:
    start = torch.ones(6, 3)
    start[5] = 0
    weight = nn.Parameter(distribute_tensor(start.clone(), mesh, [Shard(0)]))
    assert "rows without a direction (5; zero" in refusal(ZeroFilterError, lambda: UnitNormSGD([weight]))


def rows_of_which_each_rank_has_a_part_are_not_normalized_by_it(rank: int, world: int) -> None:
    images, labels = batch()
    reference, replica = network(), network()

    def spread() -> Optimizer:
        return ZeroRedundancyOptimizer(
            param_groups(replica), optimizer_class=UnitNormSGD, lr=0.05, normalize=True
        )

    message = refusal(OptionError, spread)
    assert "each would normalize other ones (parameter '0.weight'" in message
    UnitNormSGD(param_groups(replica), normalize=True)
    optimizer = spread()
    wrapped = DistributedDataParallel(replica)
    fit(reference, UnitNormSGD(param_groups(reference), lr=0.05, normalize=True), images, labels)
    fit(wrapped, optimizer, images[rank::world], labels[rank::world])
    assert_trained_alike(replica, reference)


def refusal(kind: type[Exception], act: Callable[[], object]) -> str:
    """The message of the refusal that must come."""
    try:
        act()
    except kind as error:
        return str(error)
    raise AssertionError(f"expected {kind.__name__}")

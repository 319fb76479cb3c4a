"""Sparse images against dense ones: the same products, the same training."""

import dataclasses
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from symoptim.ensemble import Split
from symoptim.ensemble.fast import sparse_images as module
from symoptim.ensemble.fast.closed_form import FIRST_FILTERS, ClosedFormNetwork
from symoptim.ensemble.fast.factored_gradient import FactoredGradient
from symoptim.ensemble.fast.sparse_images import SparseBatch, SparseImages, sparse_is_faster
from symoptim.ensemble.run_group import AutogradNetwork
from symoptim.ensemble.trainer import Trainer
from symoptim.errors import OptionError
from symoptim.models import arch1, arch2
from tests.support.small import PIXELS, a_run, blank_data, small_data

pytest.importorskip("numba")

UPDATES = ("b-sgd", "sm", "un", "full", "adamw")
NETWORKS = {"arch1": arch1, "arch2": arch2}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """With more, images stay dense."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def sparse_batch(rows: int, count: int, inputs: int, dtype: torch.dtype = torch.float64) -> SparseBatch:
    """Some of 50 images that are mostly blank, the first one wholly, and some of them twice."""
    pixels = torch.rand(50, inputs, dtype=dtype) * (torch.rand(50, inputs) < 0.2)
    pixels[0] = 0
    index = torch.randint(50, (rows, count))
    index[0, :2] = 0
    return SparseBatch(SparseImages.of(pixels), index)


def inputs_first(tensor: Tensor) -> Tensor:
    return tensor.mT.contiguous().mT


@pytest.mark.parametrize("filters", [8, 24, 64, 72, 128])
@pytest.mark.parametrize(("count", "inputs"), [(1, 30), (5, 1), (100, 30), (129, 7), (300, 784)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_those_of_dense_images(
    filters: int, count: int, inputs: int, dtype: torch.dtype
) -> None:
    images = sparse_batch(2, count, inputs, dtype)
    weights = inputs_first(torch.randn(4, filters, inputs, dtype=dtype))
    changes = torch.randn(4, filters, count, dtype=dtype)
    dense = images.dense().repeat_interleave(2, dim=0)
    torch.testing.assert_close(images.responses(weights, blocks=1), weights @ dense.mT)
    product = FactoredGradient(changes, images, changes)
    torch.testing.assert_close(product.dense(), changes @ dense)
    expected = weights - changes @ dense
    product.subtract_from(weights)
    torch.testing.assert_close(weights, expected)


def test_every_block_of_runs_begins_with_the_first_row_of_images() -> None:
    images = sparse_batch(3, 10, 30)
    weights = inputs_first(torch.randn(12, 8, 30, dtype=torch.float64))
    dense = images.dense().repeat_interleave(2, dim=0).repeat(2, 1, 1)
    torch.testing.assert_close(images.responses(weights, blocks=2), weights @ dense.mT)


def test_filters_stored_row_by_row_are_refused() -> None:
    with pytest.raises(ValueError, match="with their inputs first"):
        sparse_batch(2, 5, 30).responses(torch.ones(2, 8, 30, dtype=torch.float64), blocks=1)


def test_filters_stored_inputs_first_become_unit_to_float32_rounding() -> None:
    filters = inputs_first(torch.randn(2, 8, 20_000))
    module.make_unit_(filters, torch.tensor([1.0, -1.0]).repeat(8).view(2, 8, 1))
    lengths = filters.double().square().sum(dim=2)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=4e-7, atol=0)
    found = module.squared_lengths(filters).squeeze(2).double()
    torch.testing.assert_close(found, lengths, rtol=2e-7, atol=0)


def test_images_are_compressed_once_and_again_when_they_have_changed() -> None:
    pixels = torch.eye(3)
    compressed = SparseImages.of(pixels)
    assert SparseImages.of(pixels) is compressed
    pixels[0, 1] = 2
    assert SparseImages.of(pixels).values.tolist() == [1, 2, 1, 1]
    assert compressed.values.tolist() == [1, 1, 1]
    key = id(pixels), pixels._version
    assert key not in module._COMPRESSED  # nobody has that list any more


def test_images_of_inference_mode_are_compressed() -> None:
    with torch.inference_mode():
        pixels = torch.eye(3)
    assert SparseImages.of(pixels).columns.tolist() == [0, 1, 2]


BLANK = torch.eye(9)
FILTERS = torch.ones(2, 8, 9)
UNFIT = {
    "many nonzero pixels": (torch.ones(9, 9), FILTERS),
    "filters that do not fill a vector": (BLANK, torch.ones(2, 12, 9)),
    "more axes": (BLANK.view(9, 3, 3), FILTERS),
    "fewer pixels": (BLANK[:, :8], FILTERS),
    "more pixels": (torch.eye(10), FILTERS),
    "another precision": (BLANK.double(), FILTERS),
    "half precision": (BLANK.half(), FILTERS.half()),
}


@pytest.mark.parametrize(("pixels", "filters"), UNFIT.values(), ids=UNFIT)
def test_images_that_sparse_products_do_not_support_stay_dense(pixels: Tensor, filters: Tensor) -> None:
    assert sparse_is_faster((BLANK, BLANK), FILTERS)
    assert not sparse_is_faster((pixels, BLANK), filters)
    assert not sparse_is_faster((BLANK, pixels), filters)


def test_without_kernels_or_with_more_threads_images_stay_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(module, "numba_layers_for", lambda _: None)
        assert not sparse_is_faster((BLANK, BLANK), FILTERS)
    torch.set_num_threads(2)
    assert not sparse_is_faster((BLANK, BLANK), FILTERS)


def test_images_that_do_not_fit_the_network_are_refused() -> None:
    wider = blank_data()._replace(train_images=blank_data().train_images.repeat(1, 2))
    with pytest.raises(OptionError, match=r"cannot take images of shape \(24,\)"):
        trainer_of("arch2", 1, ("sm",), wider)


def trainer_of(
    architecture: str, depth: int, updates: Sequence[str] = UPDATES, data: Split | None = None
) -> Trainer:
    """Two runs of each update, which share their images with those of the others."""
    return Trainer(
        [a_run(update, seed=seed) for update in updates for seed in (5, 6)],
        lambda: NETWORKS[architecture](depth, inputs=PIXELS, width=8, classes=4).double(),
        data or blank_data(),
        batch=30,
        device=torch.device("cpu"),
    )


def trained(trainer: Trainer) -> dict[str, Tensor]:
    """All there is after an epoch."""
    trainer.start_epoch(1)
    measured = {str(number): numbers for number, numbers in enumerate(trainer.finish_epoch())}
    return {**trainer.stack.parameters, **trainer.stack.buffers, **measured}


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("architecture", NETWORKS)
def test_an_epoch_is_that_of_autograd_for_every_update(architecture: str, depth: int) -> None:
    sparse, reference = (trainer_of(architecture, depth) for _ in range(2))
    (group,) = sparse.groups
    assert group.images.sparse
    assert isinstance(group.network, ClosedFormNetwork)
    everything = torch.arange(len(reference.rates))
    reference.groups = [
        dataclasses.replace(
            reference.groups[0], network=AutogradNetwork(reference.stack), image_rows=everything
        )
    ]
    expected = trained(reference)
    for name, found in trained(sparse).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-9, atol=1e-11, msg=name)


def test_images_with_few_zeros_stay_dense() -> None:
    trainer = trainer_of("arch2", 1, data=small_data())
    assert trainer.images.sparse is None
    assert trainer.stack.parameters[FIRST_FILTERS].is_contiguous()


def test_runs_that_stay_and_runs_that_are_loaded_go_on_bit_for_bit() -> None:
    updates = ("b-sgd", "sm", "un")
    straight, stopped = trainer_of("arch2", 2, updates), trainer_of("arch2", 2, updates)
    trained(straight)
    trained(stopped)
    taken_up = trainer_of("arch2", 2, updates)
    taken_up.load_state_dict(stopped.state_dict())
    for trainer in (straight, taken_up):
        trainer.keep([0, 2, 3, 5])
        trainer.start_epoch(2)
    assert not straight.stack.parameters[FIRST_FILTERS].is_contiguous()
    for name, expected in straight.stack.parameters.items():
        assert taken_up.stack.parameters[name].equal(expected), name
    for state in straight.stack.network_states([0, 3]):
        assert all(tensor.is_contiguous() for tensor in state.values())

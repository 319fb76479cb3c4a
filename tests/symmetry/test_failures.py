"""What cannot be watched is refused with its cause and a way out."""

import re
from collections import UserDict
from collections.abc import Callable, Iterator, MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.utils import prune

from symoptim.errors import OptionError, TraceError
from symoptim.symmetry import trace
from symoptim.symmetry.certify import certify
from symoptim.symmetry.discover import discover


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def x() -> Tensor:
    return torch.rand(5, 3)


class Failing(nn.Module):
    """Raises what it is given."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.layer, self.error = nn.Linear(3, 3), error

    def forward(self, x: Tensor) -> Tensor:
        if x is not None:
            raise self.error
        return self.layer(x)


@pytest.mark.parametrize("error", [KeyError("mine"), ValueError("no\nreally"), AssertionError()])
def test_the_models_own_error_is_named_and_is_the_cause(error: Exception) -> None:
    with pytest.raises(
        TraceError, match="the model fails on these inputs: " + type(error).__name__
    ) as caught:
        discover(Failing(error), (x(),))
    # A copy of the model has a copy of the error.
    cause = caught.value.__cause__
    assert (type(cause), cause.args if cause else ()) == (type(error), error.args)


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(
        TraceError, match=r"fails on these inputs: RuntimeError: mat1 and mat2 .* \(2x7 and 3x4\)"
    ):
        discover(mlp(), (torch.rand(2, 7),))


def test_a_dictionary_that_the_model_does_not_take_is_given_as_keywords() -> None:
    with pytest.raises(TraceError, match=r"must be Tensor, not dict; .* keywords=dict\(inputs\)"):
        discover(mlp(), {"input": x()})
    assert len(discover(mlp(), (), {"input": x()})) == 4


def test_a_dictionary_that_the_model_takes_is_its_argument() -> None:
    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            return self.inner(batch["x"])

    assert len(discover(Takes(), {"x": x()})) == 4


def test_a_failed_call_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), Failing(ValueError()))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(TraceError):
        discover(model, (x(),))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_attention_that_cannot_be_watched_is_named() -> None:
    class Flexible(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.out = nn.Linear(16, 16), nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            heads = self.query(x).view(2, 8, 2, 8).transpose(1, 2)
            return self.out(flex_attention(heads, heads, heads).transpose(1, 2).flatten(2))

    with pytest.raises(TraceError, match=r"flex_attention.*scaled_dot_product_attention"):
        discover(Flexible(), (torch.rand(2, 8, 16),))


class Force(nn.Module):
    """Returns the derivative of what it computes, as networks for physics do."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_(True)
        energy = self.energy(x)
        return energy, torch.autograd.grad(energy.sum(), x, create_graph=True)[0]


def test_derivatives_inside_of_a_model_are_watched() -> None:
    spec = discover(Force(), (x(),))
    assert "threshold_backward in the model" in spec.unknown  # what it touches is pinned
    assert len(spec) == 0


def test_what_runs_and_cannot_be_watched_says_so() -> None:
    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
                raise RuntimeError("not here\nat all")
            return self.layer(x)

    with pytest.raises(
        TraceError, match=r"runs, but fails while .* watched: RuntimeError: not here: "
    ) as caught:
        discover(Watched(), (x(),))
    assert type(caught.value.__cause__) is RuntimeError


class Cache(MutableMapping[str, Any]):
    """Gives out another tensor each time, as tools that offload weights do."""

    def __init__(self, tensors: dict[str, Any]) -> None:
        self.tensors = tensors

    def __getitem__(self, name: str) -> Any:
        return nn.Parameter(self.tensors[name].detach().clone())

    def __setitem__(self, name: str, value: Any) -> None:
        self.tensors[name] = value

    def __delitem__(self, name: str) -> None:
        del self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def test_parameters_that_are_others_each_time_are_refused() -> None:
    model = mlp()
    vars(model[0])["_parameters"] = Cache(dict(model[0].named_parameters()))
    with pytest.raises(
        TraceError, match=r"parameters of '0' are kept in a Cache, .* before they are offloaded"
    ):
        discover(model, (x(),))


def test_parameters_in_a_dictionary_of_another_class_are_found() -> None:
    class Dictionary(dict[str, Any]):
        pass

    model = mlp()
    for module in model.modules():
        vars(module)["_parameters"] = Dictionary(vars(module)["_parameters"])
    assert len(discover(model, (x(),))) == 4


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_models_that_cannot_be_copied_are_traced() -> None:
    normed = nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 2))
    pruned = mlp()
    prune.l1_unstructured(pruned[0], "weight", amount=0.3)
    for model in (normed, pruned):
        model(x())  # which leaves a result in an attribute
        assert len(discover(model, (x(),))) >= 4


def test_an_error_of_ours_in_reading_an_exported_model_means_that_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace, "_graph", lambda *_: 1 / 0)
    spec = discover(mlp(), (x(),))
    assert spec.recorded.startswith("ZeroDivisionError")
    assert len(spec) == 4


def in_parts(wrap: Callable[[nn.Module], Any]) -> nn.Module:
    model = mlp()
    model[0] = wrap(model[0])
    return model


@pytest.fixture
def process_group(tmp_path: Any) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("wrap", [torch.compile, DataParallel, lambda one: torch.compile(DataParallel(one))])
def test_a_wrapped_model_has_the_symmetries_of_the_model_itself(wrap: Callable[[nn.Module], Any]) -> None:
    model = mlp()
    spec = discover(wrap(model), (x(),))
    assert len(spec) == 4
    assert set(spec.tensors) == {name for name, _ in model.named_parameters()}
    assert certify(spec, model, (x(),)).holds


@pytest.mark.parametrize("wrap", [torch.compile, DataParallel])
def test_what_is_wrapped_inside_a_model_is_looked_through(wrap: Callable[[nn.Module], Any]) -> None:
    model = in_parts(wrap)
    spec = discover(model, (x(),))
    assert len(spec) == 4
    assert set(spec.tensors) == {name for name, _ in model.named_parameters()}


@pytest.mark.usefixtures("process_group")
def test_data_parallel_models_are_unwrapped_and_sharded_ones_refused() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    assert len(discover(DistributedDataParallel(mlp()), (x(),))) == 4
    model = mlp()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(TraceError, match=r"'0.weight' is spread .* discover before the model is sharded"):
        discover(model, (x(),))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of other people's making
def test_caches_of_hugging_face_are_named_with_the_way_out() -> None:
    transformers = pytest.importorskip("transformers", reason="make test-all installs transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, vocab_size=40
    )
    model, ids = transformers.LlamaForCausalLM(config).eval(), torch.randint(5, 40, (2, 6))
    with pytest.raises(TraceError, match=r"returns a DynamicCache.*use_cache=False"):
        discover(model, (), {"input_ids": ids})
    cache = transformers.DynamicCache(config=config)
    model(ids, past_key_values=cache)
    with pytest.raises(OptionError, match=r"argument is a .*DynamicCache.*register"):
        discover(model, (), {"input_ids": ids, "past_key_values": cache})
    encoding = transformers.BatchEncoding({"input_ids": ids, "use_cache": False})
    with pytest.raises(TraceError, match=re.escape("discover(model, (), inputs)")):
        discover(model, encoding)
    assert len(discover(model, (), encoding)) > 100


def test_a_lazy_module_is_to_be_run_once() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(TraceError, match=r"'0.weight' has no shape yet .* run the model once first"):
        discover(model, (x(),))
    model(x())
    assert len(discover(model, (x(),))) == 4


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda h: h if h.sum() > 0 else -h, "values decide the path, or sizes"),
        (lambda h: h * (h.data_ptr() > 0), "it reads the memory of tensors"),
        (lambda h: h * len({}["mask"]) if torch.compiler.is_compiling() else h, "KeyError: 'mask'"),
    ],
    ids=["values", "memory", "the model's own"],
)
def test_the_reason_for_recording_is_short_and_has_none_of_torchs_terms(
    function: Callable[[Tensor], Tensor], reason: str
) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.function = nn.Linear(3, 3), function

        def forward(self, x: Tensor) -> Tensor:
            return self.function(self.layer(x))

    model = Model()
    assert discover(model, (x(),), vouch="*").recorded == reason
    assert "forward" not in vars(model)


class Named(nn.Module):
    """Takes its arguments by name, and has a keyword of its own set for it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.config = nn.Linear(3, 2), SimpleNamespace(use_cache=True)

    def forward(self, ids: Tensor, use_cache: bool = True) -> Tensor:
        return self.layer(ids)


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_dictionary_of_arguments_is_to_be_given_as_keywords(kind: Callable[..., Any]) -> None:
    batch = kind({"ids": x()})
    with pytest.raises(TraceError, match=r"arguments by name go into keywords=dict\(inputs\)"):
        discover(Named(), batch)
    spec = discover(Named(), (), keywords=dict(batch))
    assert "go into keywords" in certify(spec, Named(), batch).reason

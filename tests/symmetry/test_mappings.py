"""Mappings for quantization, read off a group."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry.discover import discover
from symoptim.symmetry.mappings import Mapping, as_yaml, indexed_mappings, mappings
from tests.support.hugging_face import CASES
from tests.support.zoo import caught, for_some_animals, group_of
from tests.symmetry.test_hugging_face import shaken


def mappings_of(name: str) -> list[Mapping]:
    return mappings(group_of(name))


def test_norms_values_and_ups_are_mapped_to_what_reads_them_queries_and_keys_are_not() -> None:
    assert mappings_of("gpt, layer norm, gelu") == [
        Mapping("first", ("attention.query", "attention.key", "attention.value"), 4),
        Mapping("attention.value", ("attention.out",), 4),
        Mapping("second", ("up",), 4),
        Mapping("last", ("head",), 4),
    ]


def test_of_a_gated_layer_the_half_that_is_linear_is_mapped() -> None:
    assert Mapping("up", ("down",), 5) in mappings_of("swiglu, rms norm")
    assert all(one.smooth_layer != "gate" for one in mappings_of("swiglu, rms norm"))


def test_what_moves_otherwise_is_left_out() -> None:
    assert mappings_of("squared relu") == []  # the next layer is divided by a square
    assert mappings_of("lstm") == []


def test_layers_of_a_stack_are_one_pattern_but_not_neighbors() -> None:
    linear = [Mapping(str(k), (str(k + 2),), 4) for k in (0, 2)]
    assert as_yaml(linear) == (
        "mappings:\n"
        "  - smooth_layer: '0'  # 4 channels\n"
        "    balance_layers: ['2']\n"
        "  - smooth_layer: '2'  # 4 channels\n"
        "    balance_layers: ['4']"
    )
    blocks = [Mapping(f"h.{k}.ln_1", (f"h.{k}.q", f"h.{k}.k"), 4 + k) for k in range(3)]
    assert as_yaml(blocks).splitlines()[1:] == [
        r"  - smooth_layer: 're:^h\.(0|1|2)\.ln_1$'  # 3 times 4 or 5 or 6 channels",
        r"    balance_layers: ['re:^h\.(0|1|2)\.q$', 're:^h\.(0|1|2)\.k$']",
    ]


def test_a_plain_network_has_its_pairs() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert mappings(discover(model, (torch.rand(5, 3),))) == [Mapping("0", ("2",), 4)]


def test_numbers_that_are_no_product_are_several_patterns() -> None:
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)]
    found = [Mapping(f"a.{i}.b.{j}.up", (f"a.{i}.b.{j}.down",), 4) for i, j in pairs]
    assert as_yaml(found).splitlines()[1::2] == [
        r"  - smooth_layer: 're:^a\.(0|1)\.b\.(0|1)\.up$'  # 4 times 4 channels",
        "  - smooth_layer: 'a.2.b.1.up'  # 4 channels",
    ]


# What llm-compressor does with a recipe: names are compared with ``re.match`` or are equal, the last rows of
# the smooth layer and its bias are divided, all columns of the balance layers are multiplied.


def matched(target: str, model: nn.Module) -> list[str]:
    names = [name for name, _ in model.named_modules()]
    if target.startswith("re:"):
        return [name for name in names if re.match(target.removeprefix("re:"), name)]
    return [name for name in names if name == target]


def entries(recipe: str) -> Iterator[tuple[str, list[str]]]:
    smooth, balance = recipe.splitlines()[1::2], recipe.splitlines()[2::2]
    for one, others in zip(smooth, balance, strict=True):
        yield re.findall(r"'(.*)'", one)[0], re.findall(r"'([^']*)'", others)


def resolved(recipe: str, model: nn.Module) -> list[tuple[str, tuple[str, ...]]]:
    """Groups of a recipe: the k-th match of the smooth layer with the k-th of each balance layer."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for smooth, balance in entries(recipe):
        columns = [matched(target, model) for target in (smooth, *balance)]
        assert len({len(names) for names in columns}) == 1
        found += [(first, tuple(others)) for first, *others in zip(*columns, strict=True)]
    return found


@torch.no_grad()
def smooth_(model: nn.Module, smooth: str, balance: tuple[str, ...]) -> None:
    layer, readers = model.get_submodule(smooth), [model.get_submodule(name) for name in balance]
    scales = torch.rand(readers[0].weight.shape[1], dtype=torch.float64) + 0.5
    for reader in readers:
        reader.weight.mul_(scales.view(1, -1))
    if layer.weight.ndim == 1:
        layer.weight.div_(scales)
    else:
        layer.weight[-len(scales) :].div_(scales.view(-1, 1))
    if getattr(layer, "bias", None) is not None:
        layer.bias.div_(scales)


@torch.no_grad()
def largest_change(model: nn.Module, call: Any, pairs: list[tuple[str, tuple[str, ...]]]) -> float:
    """How much outputs change, relatively, when a recipe is applied."""
    before, changed = call(model), copy.deepcopy(model)
    for smooth, balance in pairs:
        smooth_(changed, smooth, balance)
    return float((call(changed) - before).abs().max() / before.abs().max())


def check(model: nn.Module, call: Any, found: list[Mapping]) -> None:
    pairs = resolved(as_yaml(found), model)
    assert sorted(pairs) == sorted((one.smooth_layer, one.balance_layers) for one in found)
    if found:
        assert largest_change(model, call, pairs) < 1e-10


def first_of(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else first_of(next(iter(output)))


@for_some_animals
@pytest.mark.filterwarnings("ignore:other paths:symoptim.errors.PathWarning")
def test_a_recipe_changes_no_output_of_the_zoo(name: str) -> None:
    model, arguments, _ = caught(name)

    def call(model: nn.Module) -> Tensor:
        torch.manual_seed(0)
        return first_of(copy.deepcopy(model)(*arguments))

    check(model, call, mappings_of(name))


class Fused(nn.Module):
    """Values are a part of a layer of three: the last rows, or of each head the last."""

    def __init__(self, *, by_head: bool, bias: bool = False) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 24, bias=bias), nn.Linear(8, 3)
        self.by_head = by_head

    def forward(self, x: Tensor) -> Tensor:
        three = self.qkv(x)
        if self.by_head:
            q, k, v = three.view(*x.shape[:-1], 2, 3, 4).unbind(-2)
        else:
            q, k, v = (part.view(*x.shape[:-1], 2, 4) for part in three.split(8, dim=-1))
        scores = torch.softmax(torch.einsum("bshd,bthd->bhst", q, k), dim=-1)
        return self.out(torch.einsum("bhst,bthd->bshd", scores, v).flatten(-2))


def trial(model: nn.Module, *arguments: Tensor) -> list[Mapping]:
    """All groups of a model, those for recipes tried, and those with indices too."""
    model.double()
    spec = discover(model, arguments)
    check(model, lambda model: model(*arguments), mappings(spec))
    for one in indexed_mappings(spec):
        if not one.is_simple:
            changed = copy.deepcopy(model)
            smooth_by_index_(changed, one)
            torch.testing.assert_close(changed(*arguments), model(*arguments), rtol=1e-10, atol=1e-12)
    return indexed_mappings(spec)


@torch.no_grad()
def smooth_by_index_(model: nn.Module, one: Mapping) -> None:
    layer, rows, columns = model.get_submodule(one.smooth_layer), list(one.rows), list(one.columns)
    scales = torch.rand(len(layer.weight), dtype=torch.float64) + 0.5
    scales[[row for row in range(len(scales)) if row not in rows]] = 1
    assert len(set(rows)) == one.channels
    layer.weight.div_(scales.view(-1, *[1] * (layer.weight.dim() - 1)))
    if getattr(layer, "bias", None) is not None:
        layer.bias.div_(scales)
    for name in one.balance_layers:
        weight = model.get_submodule(name).weight
        weight[:, columns] *= scales[rows].view(1, -1, *[1] * (weight.dim() - 2))


def words() -> Tensor:
    return torch.rand(2, 5, 6, dtype=torch.float64)


def test_the_last_rows_of_a_fused_layer_are_mapped() -> None:
    assert trial(Fused(by_head=False), words()) == [Mapping("qkv", ("out",), 8)]


def test_rows_within_heads_are_named_one_by_one_and_are_in_no_recipe() -> None:
    values = (8, 9, 10, 11, 20, 21, 22, 23)
    assert trial(Fused(by_head=True), words()) == [Mapping("qkv", ("out",), 8, values, tuple(range(8)))]
    assert not mappings(discover(Fused(by_head=True), (torch.rand(2, 5, 6),)))


def test_a_bias_of_other_rows_would_be_divided_too_so_that_rows_are_named() -> None:
    (one,) = trial(Fused(by_head=False, bias=True), words())
    assert one.rows == tuple(range(16, 24))


class Grouped(nn.Module):
    """Two heads read the same values."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.out = nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.value(x).repeat(1, 1, 2))


def test_a_row_that_several_columns_read_occurs_as_often() -> None:
    assert trial(Grouped(), words()) == [Mapping("value", ("out",), 3, (0, 1, 2) * 2, tuple(range(6)))]


def test_convolutions_are_in_no_recipe() -> None:
    layers = [nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)]
    first, second = trial(nn.Sequential(*layers), torch.rand(2, 2, 6, 6, dtype=torch.float64))
    assert first == Mapping("0", ("2",), 3, (0, 1, 2), (0, 1, 2))
    assert second.rows == tuple(row for row in range(4) for _ in range(4))


class Columns(nn.Module):
    """Its second layer multiplies from the other side, as GPT-2's do: its inputs are rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(3, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.first(x)) @ self.second.weight


def test_inputs_that_are_rows_are_not_taken_for_columns() -> None:
    assert not trial(Columns(), words())


class Scaled(nn.Module):
    """A bias that is not where its weight is: it would be forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4, bias=False), nn.Linear(4, 2)
        self.shift = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x) + self.shift))


def test_what_moves_a_third_tensor_is_left_out() -> None:
    assert not trial(Scaled(), words())


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 5), nn.Linear(5, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Routed(nn.Module):
    """A dense layer, whose norm is read by a router and another expert besides."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(6), nn.Linear(6, 2)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 6)) for _ in range(2)
        )
        self.up, self.down = nn.Linear(6, 5), nn.Linear(5, 6)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm(x)
        weights = torch.softmax(self.router(normal), dim=-1)
        routed = sum(weights[..., k : k + 1] * expert(normal) for k, expert in enumerate(self.experts))
        return x + routed + self.down(torch.relu(self.up(normal)))


@pytest.mark.parametrize("kinds", [(Dense, Dense, Routed, Routed), (Dense, Routed, Dense, Routed)])
def test_patterns_of_mixed_stacks_match_the_layers_that_are_meant_alone(kinds: tuple[Any, ...]) -> None:
    model = nn.Sequential(*(kind() for kind in kinds), nn.Linear(6, 2))
    found = trial(model, words())
    dense = [str(k) for k, kind in enumerate(kinds) if kind is Dense]
    assert [one for one in found if len(one.balance_layers) == 1 and "norm" in one.smooth_layer] == [
        Mapping(f"{k}.norm", (f"{k}.up",), 6) for k in dense
    ]
    targets = [target for smooth, balance in entries(as_yaml(found)) for target in (smooth, *balance)]
    assert any(f"({'|'.join(dense)})" in target for target in targets)
    assert not any(r"\d" in target for target in targets)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of other people's making
@pytest.mark.parametrize(
    ("name", "smooth"),
    [
        ("llama", ["input_layernorm", "post_attention_layernorm", "up_proj", "norm"]),
        ("qwen2", ["input_layernorm", "post_attention_layernorm", "up_proj", "norm"]),
        ("mistral", ["input_layernorm", "post_attention_layernorm", "up_proj", "norm"]),
        ("phi3", ["input_layernorm", "post_attention_layernorm", "gate_up_proj", "norm"]),
        ("opt", ["self_attn_layer_norm", "v_proj", "final_layer_norm", "fc1"]),
        ("bloom", ["input_layernorm", "post_attention_layernorm"]),
        ("gpt-neox", ["final_layer_norm"]),
        ("deepseek v3", ["kv_a_layernorm", "q_a_layernorm", "up_proj", "norm"]),
        ("mixtral", ["norm"]),
    ],
)
def test_a_recipe_changes_no_output_of_hugging_faces_models(name: str, smooth: list[str]) -> None:
    transformers = pytest.importorskip("transformers", reason="make test-all installs transformers")
    case = CASES[name]
    config = getattr(transformers, case.config)(**case.settings)
    config._attn_implementation = config._experts_implementation = "eager"
    model = shaken(getattr(transformers, case.model)(config)).eval().double()
    inputs = case.inputs()
    found = mappings(discover(model, (), inputs))
    assert {one.smooth_layer.rpartition(".")[2] for one in found} >= set(smooth)
    check(model, lambda model: first_of(model(**inputs).logits), found)

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parametrizations, prune
from torch.optim import AdamW, Optimizer

from symoptim import Role, ScaledSGD, UnitNormSGD, balance_, invariant, param_groups
from symoptim.errors import OptionError, ZeroFilterWarning
from symoptim.routing import route


def roles(model: nn.Module, **options: object) -> dict[str, tuple[str, int]]:
    return {routed.names[0]: routed.role[:2] for routed in route(model, **options)}


class Tied(nn.Module):
    """A language model whose output map is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.hidden = nn.Linear(4, 4)
        self.output = nn.Linear(4, 10, bias=False)
        self.output.weight = self.embedding.weight


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.first = nn.Linear(8, 2)
        self.second = nn.Linear(8, 3)


def test_layers_decide_and_not_numbers_of_axes() -> None:
    model = nn.Sequential(
        nn.Embedding(10, 4),
        nn.Conv1d(4, 8, 3),
        nn.BatchNorm1d(8),
        nn.ConvTranspose1d(8, 6, 2),
        nn.LayerNorm((6, 5)),
        nn.LSTM(5, 4),
        nn.Linear(4, 2),
    )
    assert roles(model) == {
        "0.weight": ("plain", 0),
        "1.weight": ("rows", 0),
        "1.bias": ("plain", 0),
        "2.weight": ("plain", 0),
        "2.bias": ("plain", 0),
        "3.weight": ("rows", 1),
        "3.bias": ("plain", 0),
        "4.weight": ("plain", 0),
        "4.bias": ("plain", 0),
        "5.weight_ih_l0": ("plain", 0),
        "5.weight_hh_l0": ("plain", 0),
        "5.bias_ih_l0": ("plain", 0),
        "5.bias_hh_l0": ("plain", 0),
        "6.weight": ("columns", 0),
        "6.bias": ("plain", 0),
    }


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (nn.Linear(4, 2), ("columns", 0)),
        (nn.Conv2d(4, 2, 1), ("columns", 0)),
        (nn.ConvTranspose2d(4, 2, 1), ("columns", 1)),
        (nn.Conv2d(4, 2, 3), ("rows", 0)),
        (nn.Conv2d(4, 2, 1, groups=2), ("rows", 0)),
        (nn.ConvTranspose2d(4, 2, 2), ("rows", 1)),
        (nn.ConvTranspose2d(4, 2, 2, groups=2), ("plain", 0)),
        (nn.Bilinear(4, 4, 2), ("rows", 0)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_only_a_last_linear_map_is_by_columns(last: nn.Module, expected: tuple[str, int]) -> None:
    assert roles(nn.Sequential(nn.Conv2d(3, 4, 1), last))["1.weight"] == expected


def test_a_linear_map_before_a_last_wide_convolution_stays_by_rows() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 3))
    assert roles(model) == {
        "0.weight": ("rows", 0),
        "0.bias": ("plain", 0),
        "1.weight": ("rows", 0),
        "1.bias": ("plain", 0),
    }


@pytest.mark.parametrize("sizes", [{}, {"kdim": 3, "vdim": 5}])
def test_attention_projections_are_rows(sizes: dict[str, int]) -> None:
    found = roles(nn.MultiheadAttention(4, 2, add_bias_kv=True, **sizes))
    by_rows = {name for name, role in found.items() if role == ("rows", 0)}
    assert by_rows == {name for name in found if name.endswith("proj_weight")}
    assert found["out_proj.weight"] == ("columns", 0)
    assert found["bias_k"] == ("plain", 0)


def normed(layer: nn.Module, **options: object) -> nn.Module:
    return parametrizations.weight_norm(layer, **options)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
def test_what_a_weight_is_computed_of_has_its_role() -> None:
    hooked = (nn.utils.weight_norm(nn.Linear(4, 4)), nn.utils.spectral_norm(nn.Linear(4, 4)))
    pruned = prune.l1_unstructured(nn.ConvTranspose1d(4, 4, 2), "weight", 0.5)
    model = nn.Sequential(
        normed(nn.Linear(4, 4)), parametrizations.spectral_norm(nn.Conv1d(4, 4, 2)), *hooked, pruned
    )
    model.append(normed(nn.Linear(4, 2)))
    found = {name: role for name, role in roles(model).items() if not name.endswith("bias")}
    assert found == {
        "0.parametrizations.weight.original0": ("rows", 0),
        "0.parametrizations.weight.original1": ("rows", 0),
        "1.parametrizations.weight.original": ("rows", 0),
        "2.weight_g": ("rows", 0),
        "2.weight_v": ("rows", 0),
        "3.weight_orig": ("rows", 0),
        "4.weight_orig": ("rows", 1),
        "5.parametrizations.weight.original0": ("plain", 0),  # the lengths of class vectors
        "5.parametrizations.weight.original1": ("rows", 0),
    }


@pytest.mark.parametrize(
    ("layer", "gain", "direction"),
    [
        (normed(nn.ConvTranspose1d(3, 4, 2)), ("plain", 0), ("rows", 0)),
        (normed(nn.ConvTranspose1d(3, 4, 2), dim=1), ("rows", 1), ("rows", 1)),
        (normed(nn.Linear(3, 4), dim=1), ("plain", 0), ("rows", 1)),
        (normed(nn.Linear(3, 4), dim=None), ("plain", 0), ("plain", 0)),
        (normed(nn.Conv1d(3, 4, 2), dim=2), ("plain", 0), ("plain", 0)),
        (normed(nn.LSTM(3, 4), name="weight_hh_l0"), ("plain", 0), ("rows", 0)),
    ],
)
def test_weight_norm_frees_the_filters_it_has_norms_of(
    layer: nn.Module, gain: tuple[str, int], direction: tuple[str, int]
) -> None:
    found = roles(nn.Sequential(layer, nn.Bilinear(2, 2, 2)))
    assert next(role for name, role in found.items() if name.endswith("original0")) == gain
    assert next(role for name, role in found.items() if name.endswith("original1")) == direction


def test_unknown_parametrizations_are_plain() -> None:
    twice = parametrizations.spectral_norm(normed(nn.Linear(4, 4)))
    found = roles(nn.Sequential(parametrizations.orthogonal(nn.Linear(4, 4)), twice, nn.Linear(4, 2)))
    assert {role for name, role in found.items() if name.startswith(("0", "1"))} == {("plain", 0)}


class Conv1D(nn.Module):
    """The linear map of GPT-2 as Hugging Face has it."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))


def test_gpt2s_linear_maps_are_known_by_their_outputs() -> None:
    model = nn.Sequential(Conv1D(6, 3), Conv1D(2, 6))
    assert roles(model)["0.weight"] == roles(model)["1.weight"] == ("rows", 1)
    wrong = Conv1D(6, 3)
    wrong.nf = 3
    assert roles(wrong)["weight"] == ("plain", 0)


def test_recurrent_weights_have_filters_where_no_gate_fixes_their_scale() -> None:
    for free in (nn.RNN(3, 4, nonlinearity="relu"), nn.RNNCell(3, 4, nonlinearity="relu")):
        assert {name[:9] for name, role in roles(free).items() if role == ("rows", 0)} == {
            "weight_ih",
            "weight_hh",
        }
    for fixed in (nn.RNN(3, 4), nn.LSTM(3, 4, proj_size=2), nn.GRUCell(3, 4)):
        assert set(roles(fixed).values()) == {("plain", 0)}


def test_of_several_heads_the_last_registered_is_by_columns_and_overrides_name_the_others() -> None:
    assert roles(TwoHeads())["first.weight"] == ("rows", 0)
    assert roles(TwoHeads())["second.weight"] == ("columns", 0)
    found = roles(TwoHeads(), overrides={"first": "columns"})
    assert found["first.weight"] == found["second.weight"] == ("columns", 0)
    assert found["first.bias"] == ("plain", 0)


def test_tied_weights_appear_once_and_are_plain_where_their_uses_disagree() -> None:
    model = Tied()
    tied = next(r for r in route(model) if r.parameter is model.embedding.weight)
    assert tied.names == ("embedding.weight", "output.weight")
    assert tied.role.geometry == "plain"
    for name in ("embedding", "output.weight"):
        assert roles(model, overrides={name: "rows"})["embedding.weight"] == ("rows", 0)
    torn = roles(model, overrides={"embedding": "rows", "output": "columns"})
    assert torn["embedding.weight"] == ("plain", 0)


def test_tied_hidden_layers_that_agree_keep_their_role() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2))
    model[2].weight = model[0].weight
    assert roles(model)["0.weight"] == ("rows", 0)


def test_the_longest_override_wins() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Linear(4, 2))
    found = roles(model, overrides={"0": "plain", "0.1.weight": Role("rows", 1), "1": "rows"})
    assert found["0.0.weight"] == ("plain", 0)
    assert found["0.1.weight"] == ("rows", 1)
    assert found["1.weight"] == ("rows", 0)


def test_overrides_may_be_patterns_and_names_win_over_them() -> None:
    layer = lambda: nn.ModuleDict({"lora_A": nn.Linear(4, 2), "lora_B": nn.Linear(2, 4)})  # noqa: E731
    model = nn.ModuleDict({"query": layer(), "value": layer(), "head": nn.Linear(4, 2)})
    found = roles(model, overrides={"*.lora_B": "plain", "*": "rows", "value.lora_B": Role("rows", 1)})
    assert found["query.lora_A.weight"] == found["head.weight"] == ("rows", 0)
    assert found["query.lora_B.weight"] == ("plain", 0)
    assert found["value.lora_B.weight"] == ("rows", 1)
    assert found["query.lora_A.bias"] == ("plain", 0)
    nn.init.zeros_(model["query"]["lora_B"].weight)
    assert roles(model, overrides={"*.lora_B.*": "rows"})["query.lora_B.weight"] == ("rows", 0)
    with pytest.raises(OptionError, match=r"'lora_B' names no module .*of names is written as '\*lora_B\*'"):
        param_groups(model, overrides={"lora_B": "plain"})
    with pytest.raises(OptionError, match=r"override '\*\.bias' names nothing that has filters"):
        param_groups(model, overrides={"*.bias": "rows"})


@pytest.mark.parametrize("overrides", [["body"], "body", ("body", "plain")])
def test_overrides_that_are_no_dictionary_are_refused(overrides: Any) -> None:
    with pytest.raises(OptionError, match="give a dictionary"):
        param_groups(TwoHeads(), overrides=overrides)


def test_an_override_of_nothing_is_refused_and_near_names_given() -> None:
    with pytest.raises(OptionError, match=r"override 'boddy' names no module.*did you mean body"):
        param_groups(TwoHeads(), overrides={"boddy": "plain"})
    with pytest.raises(OptionError, match="names no module or parameter of the model; it has body, first"):
        param_groups(TwoHeads(), overrides={"xyz": "plain"})
    with pytest.raises(OptionError, match="unknown geometry 'column'"):
        param_groups(TwoHeads(), overrides={"body": "column"})
    with pytest.raises(OptionError, match="override 'body' has axis 7; it must be 0 or 1"):
        param_groups(TwoHeads(), overrides={"body": Role("rows", 7)})


@pytest.mark.parametrize("name", ["1", "0.bias"])
def test_an_override_of_something_without_filters_is_refused(name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    with pytest.raises(OptionError, match=f"override '{name}' names nothing that has filters"):
        param_groups(model, overrides={name: "rows"})


def test_the_empty_name_overrides_the_whole_model() -> None:
    assert set(roles(TwoHeads(), overrides={"": "plain"}).values()) == {("plain", 0)}
    assert roles(TwoHeads(), overrides={"": "rows"})["second.weight"] == ("rows", 0)


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(OptionError, match="ReLU has no parameters to optimize"):
        param_groups(nn.ReLU())


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_a_lazy_model_is_asked_to_see_an_input_first() -> None:
    with pytest.raises(OptionError, match=r"parameter '0.weight' is not initialized yet"):
        param_groups(nn.Sequential(nn.LazyLinear(3)))


@pytest.mark.parametrize(
    "model",
    [
        Tied(),
        TwoHeads(),
        nn.TransformerDecoderLayer(8, 2, 16),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.GRU(4, 4), nn.Bilinear(2, 3, 4), nn.PReLU()),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore:'linear2.weight' was registered last:symoptim.errors.GeometryWarning")
def test_no_parameter_is_lost_or_doubled(model: nn.Module) -> None:
    groups = param_groups(model)
    listed = [id(p) for group in groups for p in group["params"]]
    assert sorted(listed) == sorted({id(p) for p in model.parameters()})
    named = [name for group in groups for name in group["param_names"]]
    assert sorted(named) == sorted(name for name, _ in model.named_parameters())


def test_frozen_parameters_are_listed_too() -> None:
    model = nn.Linear(3, 2)
    model.weight.requires_grad_(False)
    assert sum(len(group["params"]) for group in param_groups(model)) == 2


def test_groups_print_what_went_where() -> None:
    table = str(param_groups(Tied(), overrides={"hidden": "plain"}))
    assert "embedding.weight = output.weight" in table
    assert "tied, and its uses disagree" in table
    assert "override 'hidden'" in table
    assert len(table.splitlines()) == 2 + 3


def test_groups_changed_by_hand_print_as_they_are() -> None:
    model = nn.Linear(2, 2)
    groups = param_groups(model)
    groups.append({"params": [nn.Parameter(torch.ones(3, 5))]})
    groups[0]["geometry"] = "plain"
    weight, _, extra = str(groups).splitlines()[2:]
    assert weight.split()[:3] == ["weight", "2x2", "plain"]
    assert "3x5" in extra
    assert extra.endswith("added by hand")


@pytest.mark.parametrize("optimizer", [ScaledSGD, UnitNormSGD, torch.optim.AdamW])
def test_groups_fit_any_optimizer(optimizer: type[torch.optim.Optimizer]) -> None:
    model = balance_(TwoHeads(), tolerance=math.inf)
    made = optimizer(param_groups(model), lr=0.1)
    assert made.param_groups[0]["param_names"] == ["body.weight", "first.weight"]


def test_parameters_without_their_model_are_refused() -> None:
    with pytest.raises(OptionError, match=r"needs the model itself.* got a generator: give the nn\.Module"):
        param_groups(nn.Linear(2, 2).parameters())  # pyright: ignore[reportArgumentType]


class LowRank(nn.Module):
    """A frozen layer, to which a product of two factors is added, the second of them zero at first."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.first, self.second = (
            nn.Linear(6, 8),
            nn.Linear(6, 2, bias=False),
            nn.Linear(2, 8, bias=False),
        )
        self.head = nn.Linear(8, 3)
        nn.init.zeros_(self.second.weight)
        self.base.requires_grad_(False)
        self.head.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.base(x) + self.second(self.first(x))).relu())


@pytest.mark.parametrize("known", [False, True])
def test_a_weight_that_is_zero_at_the_start_is_plain_and_learns(known: bool) -> None:
    x, labels = torch.randn(32, 6), torch.arange(32) % 3
    model = LowRank()
    groups = param_groups(model, example_inputs=(x,) if known else None)
    (line,) = [line for line in str(groups).splitlines() if line.startswith("second.weight")]
    assert line.split()[2] == "plain"
    assert line.endswith("zero at the start")
    makes: list[Callable[[Any], Optimizer]] = [
        lambda groups: ScaledSGD(groups, lr=1.0),
        lambda groups: invariant(AdamW, groups, lr=0.01),
    ]
    for make in makes:
        torch.manual_seed(0)
        model = LowRank()
        optimizer = make(param_groups(model, example_inputs=(x,) if known else None))
        losses: list[float] = []
        for _ in range(100):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.9 * losses[0]


def test_an_override_decides_about_zero_weights_and_only_whole_ones_are_meant() -> None:
    assert roles_of(param_groups(LowRank(), overrides={"second": "rows"}))["second.weight"] == "rows"
    assert roles_of(param_groups(LowRank(), overrides={"": "rows"}))["second.weight"] == "rows"
    assert roles_of(param_groups(LowRank(), overrides={"first": "rows"}))["second.weight"] == "plain"
    model = LowRank()
    with torch.no_grad():
        model.second.weight[3] = 1.0
    groups = param_groups(model)
    assert roles_of(groups)["second.weight"] == "rows"
    with pytest.warns(ZeroFilterWarning, match=r"zero ones stay at zero and never learn.*geometry='plain'"):
        ScaledSGD(groups)
    assert roles_of(param_groups(LowRank().to("meta")))["second.weight"] == "rows"


def roles_of(groups: list[dict[str, Any]]) -> dict[str, str]:
    return {name: group["geometry"] for group in groups for name in group["param_names"]}

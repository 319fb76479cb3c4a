"""``param_groups`` says what it is not sure of, and sorts parts of a model by the whole."""

import copy
import itertools
import math
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import SplitPoint, pipeline
from torch.nn.utils.parametrizations import weight_norm

import symoptim
from symoptim import ScaledSGD, UnitNormSGD, param_groups
from symoptim.errors import GeometryWarning, OptionError, SymmetryError
from symoptim.symmetry.certify import Certificate
from symoptim.symmetry.spec import SymmetrySpec

SGDS = [ScaledSGD, UnitNormSGD]


class Homemade(nn.Module):
    """Matrices without layers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.body) @ self.head


def test_weights_nothing_is_known_of_are_named_with_the_way_out() -> None:
    with pytest.warns(
        GeometryWarning, match=r"100% of the entries .* plain SGD.* body .*example_inputs="
    ) as told:
        param_groups(Homemade())
    assert told[0].filename == __file__
    mixed = nn.ModuleList([nn.LSTM(4, 16), nn.Linear(16, 4)])
    with pytest.warns(
        GeometryWarning, match=r"95% of .* are 'plain'; the largest are 0\.weight_hh_l0 \(LSTM"
    ):
        param_groups(mixed)
    with pytest.warns(GeometryWarning, match="all weights with two axes or more"):
        param_groups(nn.Embedding(7, 3))


def test_the_way_out_ends_the_warning() -> None:
    x = (torch.rand(5, 3),)
    assert [group["geometry"] for group in param_groups(Homemade(), example_inputs=x)] == ["rows", "columns"]
    for wanted in ("rows", "plain"):
        param_groups(Homemade(), overrides={"": wanted})
    mixed = nn.ModuleList([nn.Embedding(9, 4), nn.LSTM(4, 16), nn.Linear(16, 4)])
    param_groups(mixed, overrides={"1": "plain"})


def test_frozen_weights_are_not_counted() -> None:
    mixed = nn.ModuleList([nn.LSTM(4, 16), nn.Linear(16, 4)])
    mixed[0].requires_grad_(False)
    assert len(param_groups(mixed)) == 2


def test_a_model_without_rescalings_is_said_to_have_none() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with pytest.warns(GeometryWarning, match="no rescaling of their filters was found"):
        param_groups(model, example_inputs=(torch.rand(5, 3),))


@pytest.mark.parametrize(
    "model",
    [
        symoptim.models.arch1(2, inputs=3, classes=2, width=4),
        symoptim.models.arch2(2, inputs=3, classes=2, width=4),
        symoptim.models.SegNetBasic(3, features=4),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 9, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Sigmoid(), nn.Dropout()),
        nn.Sequential(
            nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False),
            nn.Linear(8, 3),
        ),
        nn.ModuleList([nn.Embedding(900, 8), nn.TransformerEncoderLayer(8, 2, 16), nn.Linear(8, 900)]),
        nn.BatchNorm1d(3),
    ],
)
def test_usual_networks_do_not_warn(model: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        param_groups(model)


class TwoHeads(nn.Module):
    """The body was registered last."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.body = nn.Linear(4, 2), nn.Linear(4, 3), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.body(x))
        return self.one(hidden), self.other(hidden)


def test_roles_that_contradict_those_of_layers_are_marked() -> None:
    table = str(param_groups(TwoHeads(), example_inputs=(torch.rand(5, 3),)))
    assert "only its inputs rescale; by its layer rows" in table
    assert "its outputs rescale; by its layer columns" in table
    agreed = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert "by its layer" not in str(param_groups(agreed, example_inputs=(torch.rand(5, 3),)))


def curve(
    optimizer: type[ScaledSGD | UnitNormSGD],
    model: nn.Module,
    *,
    momentum: float = 0.0,
    groups: object = None,
) -> Tensor:
    """Losses of twenty steps."""
    made = optimizer(groups or param_groups(model), lr=0.05, momentum=momentum)
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    losses: list[Tensor] = []
    for _ in range(20):
        made.zero_grad()
        loss = (model(x) - x.sin()[:, :2]).square().mean()
        loss.backward()
        made.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def mlp(*, normed: bool = False, scale: float = 1.0) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(3, 6, bias=False), nn.Linear(6, 6, bias=False), nn.Linear(6, 2, bias=False)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]).double()
    symoptim.balance_(model, tolerance=math.inf)
    with torch.no_grad():
        layers[0].weight.mul_(scale)
    if normed:
        for layer in layers[:2]:
            nn.utils.parametrizations.weight_norm(layer)
    return model


def test_with_unit_norms_weight_norm_is_trained_as_the_weights_it_makes() -> None:
    expected = curve(UnitNormSGD, mlp())
    torch.testing.assert_close(curve(UnitNormSGD, mlp(normed=True)), expected, rtol=1e-10, atol=0)
    assert not torch.allclose(curve(ScaledSGD, mlp(normed=True)), expected, rtol=1e-4)


@torch.no_grad()
def test_a_scaled_step_of_weight_norm_is_one_of_its_weights_to_first_order() -> None:
    def moved(model: nn.Sequential, rate: float) -> Tensor:
        with torch.enable_grad():
            loss = model(torch.ones(1, 3, dtype=torch.float64)).square().sum()
            loss.backward()
        before = model[0].weight.detach().clone()
        ScaledSGD(param_groups(model), lr=rate).step()
        return (model[0].weight - before) / rate

    errors: list[float] = []
    for rate in (1e-4, 1e-5):
        expected = moved(mlp(scale=3.0), rate)
        errors.append(float((moved(mlp(normed=True, scale=3.0), rate) - expected).norm() / expected.norm()))
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaled_steps_of_weight_norm_do_not_see_its_scales(momentum: float) -> None:
    model, far = mlp(normed=True), mlp(normed=True)
    with torch.no_grad():
        scales = torch.tensor([[0.1], [3.0], [20.0], [1.0], [0.5], [4.0]], dtype=torch.float64)
        for layer in (far[0], far[2]):
            layer.parametrizations.weight.original1.mul_(scales)
        far[2].parametrizations.weight.original0.mul_(scales)
        far[4].weight.div_(scales.T)
    one, other = (curve(ScaledSGD, some, momentum=momentum) for some in (model, far))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=0)
    plain = curve(ScaledSGD, far, groups=[{"params": far.parameters(), "geometry": "plain"}])
    assert not torch.allclose(one, plain, rtol=1e-3)


def deep() -> nn.Sequential:
    torch.manual_seed(0)
    sizes = [3, 6, 6, 6, 6]
    layers = [
        layer
        for inputs, outputs in itertools.pairwise(sizes)
        for layer in (nn.Linear(inputs, outputs), nn.ReLU())
    ]
    return symoptim.balance_(nn.Sequential(*layers, nn.Linear(6, 2)).double(), tolerance=math.inf)


def train_in_stages(
    optimizer: type[ScaledSGD | UnitNormSGD], stages: list[nn.Module], groups: list[object]
) -> Tensor:
    """Losses of twenty steps, each stage with an optimizer of its own."""
    made = [optimizer(one, lr=0.05, momentum=0.9) for one in groups]
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    losses: list[Tensor] = []
    for _ in range(20):
        hidden = x
        for stage in stages:
            hidden = stage(hidden)
        loss = (hidden - x.sin()[:, :2]).square().mean()
        for one in made:
            one.zero_grad()
        loss.backward()
        for one in made:
            one.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("optimizer", SGDS)
@pytest.mark.parametrize("way", ["slices", "copies", "traced"])
def test_stages_of_a_pipeline_train_as_the_whole(optimizer: type[ScaledSGD | UnitNormSGD], way: str) -> None:
    whole = deep()
    expected = curve(optimizer, copy.deepcopy(whole), momentum=0.9)
    if way == "traced":
        example = (torch.rand(16, 3, dtype=torch.float64),)
        pipe = pipeline(whole, example, split_spec={"4": SplitPoint.BEGINNING, "6": SplitPoint.BEGINNING})
        stages: list[nn.Module] = [pipe.get_stage_module(number) for number in range(3)]
    else:
        stages = [whole[:4], whole[4:6], whole[6:]]
        if way == "copies":
            stages = [copy.deepcopy(whole) for _ in range(3)]
            for stage, mine in zip(stages, (range(4), range(4, 6), range(6, 9)), strict=True):
                for place in set(range(9)) - set(mine):
                    stage[place] = nn.Identity()
    groups: list[object] = [param_groups(whole, only=stage) for stage in stages]
    torch.testing.assert_close(train_in_stages(optimizer, stages, groups), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("optimizer", SGDS)
def test_a_stage_on_its_own_is_in_doubt_and_trains_otherwise(
    optimizer: type[ScaledSGD | UnitNormSGD],
) -> None:
    whole = deep()
    expected = curve(optimizer, copy.deepcopy(whole), momentum=0.9)
    stages: list[nn.Module] = [whole[:4], whole[4:6], whole[6:]]
    groups: list[object] = []
    for stage in stages[:2]:
        with pytest.warns(GeometryWarning, match=r"ReLU comes last.*param_groups\(whole, only=stage\)"):
            groups.append(param_groups(stage))
    groups.append(param_groups(stages[2]))
    assert not torch.allclose(train_in_stages(optimizer, stages, groups), expected, rtol=1e-4)
    for wanted in ("rows", "columns"):
        param_groups(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), overrides={"0": wanted})


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ([nn.RMSNorm(8)], "RMSNorm comes last"),
        ([nn.Mish()], "Mish comes last"),
        ([nn.ReLU6()], "ReLU6 comes last"),
        ([nn.ReLU(), nn.Flatten()], "ReLU comes last"),
        ([nn.MaxPool1d(2)], "MaxPool1d comes last"),
    ],
    ids=lambda end: type(end[-1]).__name__ if isinstance(end, list) else "",
)
def test_other_ends_of_stages_are_in_doubt_too(end: list[nn.Module], said: str) -> None:
    with pytest.warns(GeometryWarning, match=said):
        param_groups(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), *end))


def test_a_single_layer_of_a_transformer_is_in_doubt() -> None:
    with pytest.warns(GeometryWarning, match="part of a TransformerEncoderLayer"):
        param_groups(nn.TransformerEncoderLayer(8, 2, 16))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_stage_of_residual_blocks_is_in_doubt_and_a_perceptron_is_not() -> None:
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    stage = nn.TransformerEncoder(block, 3)
    with pytest.warns(GeometryWarning, match=r"'layers\.0\.linear2\.weight' is the same layer of another"):
        param_groups(stage)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        param_groups(nn.Sequential(stage, nn.Linear(8, 8)))
        for normed in (lambda layer: layer, weight_norm):
            layers = [nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)]
            wrapped = [normed(one) if isinstance(one, nn.Linear) else one for one in layers]
            param_groups(nn.Sequential(nn.Sequential(*wrapped)))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_traced_stage_is_known_for_one() -> None:
    pipe = pipeline(deep(), (torch.rand(4, 3, dtype=torch.float64),), split_spec={"4": SplitPoint.BEGINNING})
    with pytest.warns(GeometryWarning, match=r"traced model.*param_groups\(whole, only=stage\)"):
        param_groups(pipe.get_stage_module(0))
    split = torch.fx.symbolic_trace(deep()[:7])
    with pytest.warns(GeometryWarning, match="it is square, and the model was split or traced"):
        param_groups(split)
    assert len(param_groups(torch.fx.symbolic_trace(deep()))) == 3


def test_roles_of_a_part_are_those_of_the_whole_and_a_stranger_is_refused() -> None:
    whole = deep()
    groups = param_groups(whole.to("meta"), only=deep()[:3], overrides={"2": "plain"})
    assert [group["param_names"] for group in groups] == [["0.weight"], ["0.bias", "2.weight", "2.bias"]]
    with pytest.raises(OptionError, match=r"'weight' of shape \(5, 5\) is not in the model: only="):
        param_groups(whole, only=nn.Linear(5, 5))
    with pytest.raises(OptionError, match="ReLU without parameters"):
        param_groups(whole, only=nn.ReLU())
    with pytest.raises(OptionError, match=r"must be an nn\.Module, got list"):
        param_groups(whole, only=[whole[0]])
    with pytest.raises(OptionError, match=r"'1\.weight' of shape"):
        param_groups(whole, only=nn.Sequential(whole[0], nn.Linear(6, 6)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")
def test_gpt2_is_trained_by_its_filters() -> None:
    transformers = pytest.importorskip("transformers", reason="make test-all installs transformers")
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=50, n_positions=16)
    model = transformers.GPT2LMHeadModel(config).eval()
    groups = param_groups(model)
    kinds = {(group["geometry"], group["axis"]): len(group["param_names"]) for group in groups}
    assert kinds[("rows", 1)] == 8
    assert ("columns", 0) not in kinds
    tokens = {"input_ids": torch.randint(50, (2, 6)), "use_cache": False}
    found = param_groups(model, example_inputs=(), keywords=tokens)
    assert {one.role.axis for one in found.routed if one.role.geometry != "plain"} == {1}
    assert "by its layer rows of axis 1" in str(found)


@pytest.mark.parametrize("known", [True, False])
def test_of_a_model_that_is_frozen_as_a_whole_it_says_that_nothing_is_trained(known: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).requires_grad_(False)
    inputs = (torch.rand(5, 3),) if known else None
    with pytest.warns(
        GeometryWarning, match=r"no parameter of Sequential requires gradients.*requires_grad_"
    ):
        param_groups(model, example_inputs=inputs)


@pytest.mark.parametrize("reason", ["", "its outputs differ from call to call"])
def test_symmetries_that_do_not_pass_are_refused_in_plain_words(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = dict.fromkeys(("eps_error", "eps_nearby", "evaluation_error", "noether_residual"), 0.0)
    found = Certificate(output_error=1.0, **nothing, unknown={}, pinned={}, approximate={}, reason=reason)
    monkeypatch.setattr(SymmetrySpec, "certify", lambda *_, **__: found)
    said = "could not be tested: its outputs differ" if reason else r"did not pass their test \(DOES NOT HOLD"
    with pytest.raises(SymmetryError, match=rf"that were found {said}.*leave example_inputs= out"):
        param_groups(mlp(), example_inputs=(torch.rand(5, 3).double(),))


def test_what_is_known_of_symmetries_is_handed_on() -> None:
    class Routing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.other, self.last = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor, other: bool = False) -> Tensor:
            return self.last(torch.relu(self.other(x) if other else self.first(x)))

    model, x = Routing(), torch.rand(5, 3)
    roles = {
        "example": lambda: param_groups(model, example_inputs=(x,)),
        "inputs": lambda: param_groups(model, example_inputs=(x,), inputs=[(x, True)]),
        "vouch": lambda: param_groups(model, example_inputs=(x,), vouch=["other"]),
        "spec": lambda: param_groups(
            model, spec=symoptim.discover(model, (x,), inputs=[((x,), {"other": True})])
        ),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {
            name: {one.names[0]: one.role.geometry for one in make().routed} for name, make in roles.items()
        }
    assert found["example"] == dict.fromkeys(found["example"], "plain")
    assert found["inputs"] == found["spec"]
    assert found["inputs"]["first.weight"] == found["inputs"]["other.weight"] == "rows"
    assert found["vouch"]["first.weight"] == "rows"
    for given in ({"inputs": [(x,)]}, {"vouch": ["other"]}, {"keywords": {}}):
        with pytest.raises(OptionError, match="give example_inputs= too"):
            param_groups(model, **given)
    with pytest.raises(OptionError, match="spec= has them"):
        param_groups(model, spec=symoptim.discover(model, (x,), vouch="*"), vouch=["other"])

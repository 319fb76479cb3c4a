import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from symoptim import FullMetricSGD, ScaledSGD, UnitNormSGD, discover, invariant, param_groups
from symoptim.errors import CheckpointError, OptionError

Make = Callable[[list[dict]], Optimizer]

SCALED: Make = lambda groups: ScaledSGD(groups, lr=0.1, momentum=0.9)  # noqa: E731
UNIT_NORM: Make = lambda groups: UnitNormSGD(groups, lr=0.1, momentum=0.9, normalize=True)  # noqa: E731
CHARTED: Make = lambda groups: invariant(SGD, groups, lr=0.1, momentum=0.9)  # noqa: E731
PLAIN: Make = lambda groups: SGD(groups, lr=0.1, momentum=0.9)  # noqa: E731
ADAMW: Make = lambda groups: invariant(AdamW, groups, lr=0.1)  # noqa: E731


def stepped(make: Make, geometry: str = "rows") -> Optimizer:
    weight = nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.ones(2, 2)
    optimizer = make([{"params": [weight], "geometry": geometry}])
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("make", [SCALED, UNIT_NORM, CHARTED, ADAMW])
def test_a_state_saved_for_another_geometry_is_refused_and_changes_nothing(make: Make) -> None:
    saved = stepped(make, "columns").state_dict()
    saved["param_groups"][0]["lr"] = 0.5
    optimizer = stepped(make)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(CheckpointError, match="group 0 has geometry 'rows', the saved state 'columns'"):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert str(optimizer.state_dict()) == str(before)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(SCALED, UNIT_NORM), (SCALED, PLAIN), (CHARTED, PLAIN), (CHARTED, SCALED), (ADAMW, CHARTED)],
)
def test_a_state_made_by_another_optimizer_is_refused(ours: Make, theirs: Make) -> None:
    with pytest.raises(CheckpointError, match=r"group 0 has optimizer '\w+', the saved state"):
        stepped(ours).load_state_dict(stepped(theirs).state_dict())


@pytest.mark.parametrize("make", [SCALED, UNIT_NORM, CHARTED])
def test_the_options_of_an_optimizer_without_state_can_be_taken_over(make: Make) -> None:
    saved = SGD([nn.Parameter(torch.ones(2, 2))], lr=0.5).state_dict()
    optimizer = stepped(make, "columns")
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["geometry"] == "columns"
    optimizer.step()


def test_a_state_of_other_shapes_is_refused_and_changes_nothing() -> None:
    optimizer = stepped(SCALED)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["momentum_buffer"] = torch.ones(3, 3)
    with pytest.raises(CheckpointError, match=r"momentum_buffer of parameter 0 has shape \(3, 3\)"):
        optimizer.load_state_dict(saved)
    assert state_dict_shape(optimizer) == (2, 2)


def state_dict_shape(optimizer: Optimizer) -> tuple[int, ...]:
    return tuple(optimizer.state_dict()["state"][0]["momentum_buffer"].shape)


@pytest.mark.parametrize(
    ("make", "option", "says"),
    [
        (UNIT_NORM, {"weight_decay": 0.1}, "has no effect on unit-norm rows"),
        (SCALED, {"lr": float("nan")}, "lr must be a finite number"),
        (CHARTED, {"lr": -1.0}, "lr must be a finite number"),
    ],
)
def test_bad_options_do_not_get_in_through_a_load(make: Make, option: dict[str, float], says: str) -> None:
    optimizer = stepped(make)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0].update(option)
    with pytest.raises(OptionError, match=says):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_bad_options_do_not_get_in_through_a_stateless_load_of_another_geometry() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    saved = UnitNormSGD([{"params": [weight], "geometry": "plain"}], weight_decay=0.1).state_dict()
    optimizer = UnitNormSGD([weight], normalize=True)
    with pytest.raises(OptionError, match="has no effect on unit-norm rows"):
        optimizer.load_state_dict(saved)


def test_what_a_users_hook_does_after_a_load_stays() -> None:
    optimizer = stepped(SCALED)

    def forget(loaded: Optimizer) -> None:
        for state in loaded.state.values():
            state["momentum_buffer"].zero_()

    optimizer.register_load_state_dict_post_hook(forget)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert not optimizer.state_dict()["state"][0]["momentum_buffer"].any()
    assert len(optimizer._optimizer_load_state_dict_pre_hooks) == 0
    assert len(optimizer._optimizer_load_state_dict_post_hooks) == 1


def test_groups_taken_from_another_optimizer_belong_to_the_new_one() -> None:
    scaled = stepped(SCALED)
    weight = scaled.param_groups[0]["params"][0]
    reused = UnitNormSGD(scaled.param_groups, momentum=0.9, normalize=True)
    weight.grad = torch.ones(2, 2)
    reused.step()
    fresh = UnitNormSGD([weight], lr=0.1, momentum=0.9, normalize=True)
    fresh.load_state_dict(reused.state_dict())
    with pytest.raises(CheckpointError, match="'UnitNormSGD', the saved state 'ScaledSGD'"):
        reused.load_state_dict(scaled.state_dict())


def test_a_subclass_takes_the_checkpoints_of_its_parent() -> None:
    class Mine(ScaledSGD):
        pass

    stepped(lambda groups: Mine(groups, lr=0.1, momentum=0.9)).load_state_dict(stepped(SCALED).state_dict())


def test_hooks_of_the_user_see_and_change_what_is_loaded() -> None:
    optimizer = stepped(SCALED)
    saved = stepped(UNIT_NORM).state_dict()

    def claim(_: Optimizer, state: dict) -> dict:
        groups = [{**group, "optimizer": "ScaledSGD", "lr": 0.25} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    optimizer.register_load_state_dict_pre_hook(claim)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.25


MOMENTUM_FREE: dict[str, Make] = {
    "ScaledSGD": lambda groups: ScaledSGD(groups, lr=0.1),
    "UnitNormSGD": lambda groups: UnitNormSGD(groups, lr=0.1),
    "invariant": lambda groups: invariant(SGD, groups, lr=0.1),
    "SGD": lambda groups: SGD(groups, lr=0.1),
}


@pytest.mark.filterwarnings("ignore:UnitNormSGD:symoptim.errors.GeometryWarning")
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": False}, {"capturable": True}])
@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
def test_without_momentum_there_is_no_state_as_in_torch(
    kind: type[ScaledSGD] | type[UnitNormSGD], options: dict[str, bool]
) -> None:
    optimizer = stepped(lambda groups: kind(groups, lr=0.1, **options))
    assert not optimizer.state
    assert not optimizer.state_dict()["state"]


def test_the_full_metric_has_no_state_without_momentum_either() -> None:
    for fused in (None, False):
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        x = torch.rand(2, 3)
        optimizer = FullMetricSGD(model, discover(model, (x,)), fused=fused)
        model(x).sum().backward()
        optimizer.step()
        assert not optimizer.state


@pytest.mark.filterwarnings("ignore:UnitNormSGD:symoptim.errors.GeometryWarning")
@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("theirs", MOMENTUM_FREE)
@pytest.mark.parametrize("ours", ["ScaledSGD", "UnitNormSGD", "invariant"])
def test_a_checkpoint_without_momentum_is_accepted_whatever_made_it(
    ours: str, theirs: str, steps: int
) -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.ones(2, 2)
    geometry = {} if theirs == "SGD" else {"geometry": "columns"}
    saver = MOMENTUM_FREE[theirs]([{"params": [weight], **geometry}])
    for _ in range(steps):
        saver.step()
    saver.param_groups[0]["lr"] = 0.5
    optimizer = stepped(MOMENTUM_FREE[ours])
    optimizer.load_state_dict(saver.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["geometry"] == "rows"
    optimizer.step()


def test_empty_entries_of_older_checkpoints_hold_nothing_either() -> None:
    saved = stepped(MOMENTUM_FREE["ScaledSGD"], "columns").state_dict()
    saved["state"] = {0: {}}
    for optimizer in (stepped(SCALED), stepped(ADAMW)):
        optimizer.load_state_dict(copy.deepcopy(saved))
        optimizer.step()


@pytest.mark.parametrize("steps", [0, 1])
def test_master_copies_mean_the_same_in_every_geometry(steps: int) -> None:
    weight = nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))
    weight.grad = torch.ones_like(weight)
    saver = ScaledSGD([{"params": [weight], "geometry": "columns"}], lr=1e-3)
    for _ in range(steps):
        saver.step()
    optimizer = ScaledSGD([weight], lr=1e-3)
    optimizer.load_state_dict(copy.deepcopy(saver.state_dict()))
    optimizer.step()
    expected = saver.state[weight].get("master", torch.ones(2, 2))
    assert torch.allclose(optimizer.state[weight]["master"], expected - 2e-3, atol=1e-5)


def test_master_copies_are_refused_by_an_optimizer_that_keeps_none() -> None:
    weight = nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))
    weight.grad = torch.ones_like(weight)
    saver = ScaledSGD([weight], lr=1e-3)
    saver.step()
    with pytest.raises(CheckpointError, match="group 0 has optimizer"):
        invariant(AdamW, [weight], lr=1e-3).load_state_dict(saver.state_dict())


@pytest.mark.parametrize("make", [SCALED, UNIT_NORM, CHARTED, ADAMW])
@pytest.mark.parametrize("state", ["x", None, 1])
def test_what_is_no_state_is_refused_and_changes_nothing(make: Make, state: object) -> None:
    optimizer = stepped(make)
    before, saved = str(optimizer.state_dict()), copy.deepcopy(optimizer.state_dict())
    saved["state"][0] = state
    with pytest.raises(CheckpointError, match=r"the saved state of parameter 0 is .*, not a dict"):
        optimizer.load_state_dict(saved)
    assert str(optimizer.state_dict()) == before


@pytest.mark.parametrize(
    "value", ["x", None, torch.ones(2, 2).to_sparse(), torch.ones(2, 2).to(torch.complex64)]
)
def test_what_is_no_momentum_is_refused_and_changes_nothing(value: object) -> None:
    optimizer = stepped(SCALED)
    before, saved = str(optimizer.state_dict()), copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["momentum_buffer"] = value
    with pytest.raises(CheckpointError, match=r"momentum_buffer of parameter 0 is .*, not a dense tensor"):
        optimizer.load_state_dict(saved)
    assert str(optimizer.state_dict()) == before


class Adapted(nn.Module):
    """Two linear maps, the second one with low-rank adapters as PEFT makes them: B begins at zero."""

    def __init__(self, adapters: int = 1) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.lora_A = nn.ModuleList(nn.Linear(3, 2, bias=False) for _ in range(adapters))
        self.lora_B = nn.ModuleList(nn.Linear(2, 4, bias=False) for _ in range(adapters))
        self.last = nn.Linear(4, 2)
        for one in self.lora_B:
            nn.init.zeros_(one.weight)

    def forward(self, x: Tensor) -> Tensor:
        parts = [b(a(x)) for a, b in zip(self.lora_A, self.lora_B, strict=True)]
        return self.last((self.first(x) + sum(parts)).tanh())


@pytest.mark.parametrize("adapters", [1, 6])
@pytest.mark.parametrize("name", ["ScaledSGD", "UnitNormSGD", "invariant"])
def test_groups_made_after_weights_left_zero_are_said_to_be_others_with_the_way_out(
    name: str, adapters: int
) -> None:
    makes: dict[str, Make] = {
        "ScaledSGD": lambda groups: ScaledSGD(groups, lr=0.1, momentum=0.9),
        "UnitNormSGD": lambda groups: UnitNormSGD(groups, lr=0.1, momentum=0.9, normalize=True),
        "invariant": lambda groups: invariant(AdamW, groups, lr=0.1),
    }
    torch.manual_seed(0)
    model, x = Adapted(adapters), torch.rand(5, 3)
    fresh = copy.deepcopy(model)
    optimizer = makes[name](param_groups(model))
    for _ in range(2):
        optimizer.zero_grad()
        (model(x) - 1).square().sum().backward()
        optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    resumed = makes[name](param_groups(copy.deepcopy(model)))
    before = copy.deepcopy(resumed.state_dict())
    with pytest.raises(
        CheckpointError, match=r"'lora_B\.0\.weight'.*: 'rows' here, and 'plain' in the saved.* zero .* then"
    ) as refused:
        resumed.load_state_dict(saved)
    assert resumed.state_dict()["param_groups"] == before["param_groups"]
    way_out = str(refused.value).partition("overrides=")[2].removesuffix(")")
    overrides = eval(way_out, {"saved": saved})
    makes[name](param_groups(model, overrides=overrides)).load_state_dict(saved)
    makes[name](param_groups(fresh)).load_state_dict(saved)  # groups made before weights are loaded
    with pytest.raises(CheckpointError, match=r"'plain' here, and 'rows' in the saved .* zero .* now\."):
        makes[name](param_groups(fresh)).load_state_dict(before)


def test_an_override_as_plain_joins_the_other_plain_parameters() -> None:
    model = nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.Flatten(), nn.Linear(3, 2))
    assert len(param_groups(model, overrides={"0": "plain"})) == 2


def test_a_state_of_another_optimizer_is_said_to_be_one_whatever_its_groups() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.rand(5, 3)
    spec = discover(model, (x,))
    pair = [
        ScaledSGD(param_groups(model), lr=0.1, momentum=0.9),
        FullMetricSGD(model, spec, lr=0.1, momentum=0.9),
    ]
    model(x).square().mean().backward()
    for optimizer in pair:
        optimizer.step()
    for one, other in (pair, reversed(pair)):
        with pytest.raises(
            CheckpointError, match=r"group 0 has optimizer '\w+SGD', the saved state '\w+SGD'"
        ):
            one.load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    ("saved", "says"),
    [
        ({}, "and this one is empty: load what optimizer.state_dict"),
        (nn.Linear(2, 2).state_dict(), r"weights of a model \('weight', 'bias'\): load what optimizer"),
        ({"epoch": 3, "optimizer": {"param_groups": []}}, r"has 'epoch', 'optimizer': load checkpoint\['opt"),
    ],
)
@pytest.mark.parametrize("make", [SCALED, UNIT_NORM, ADAMW])
def test_what_is_no_state_of_an_optimizer_is_refused(make: Make, saved: dict, says: str) -> None:
    with pytest.raises(CheckpointError, match=says):
        stepped(make).load_state_dict(saved)


def test_a_state_of_other_groups_is_said_to_be_one_with_the_way_out() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.rand(5, 3)
    spec = discover(model, (x,))

    def made(*parts: nn.Module) -> FullMetricSGD:
        groups = [{"params": [*part.parameters()]} for part in parts]
        optimizer = FullMetricSGD(model, spec, lr=0.1, momentum=0.9, groups=groups[:1])
        for group in groups[1:]:
            optimizer.add_param_group(group)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        return optimizer

    head_first = made(model[2], model[0]).state_dict()
    says = (
        r"saved state has 2 groups \(2 parameters: 2\.weight, 2\.bias; 2 parameters: 0\.weight, 0\.bias\), "
    )
    with pytest.raises(CheckpointError, match=says + r"and here is 1 group \(4 parameters: .*groups=\["):
        made(model).load_state_dict(head_first)
    with pytest.raises(CheckpointError, match=says + r"and here are 2 groups \(2 parameters: 0\.weight, 0"):
        made(model[0], model[2]).load_state_dict(head_first)
    made(model[2], model[0]).load_state_dict(head_first)


def test_names_may_be_others_and_order_decides_then() -> None:
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))
    saved = ScaledSGD([*model.named_parameters()], lr=0.5)  # pyright: ignore
    inner = ScaledSGD([(f"net.{name}", p) for name, p in model.named_parameters()], lr=0.1)
    inner.load_state_dict(saved.state_dict())
    assert inner.param_groups[0]["lr"] == 0.5

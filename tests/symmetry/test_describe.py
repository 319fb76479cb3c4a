"""What is said about a group is true, and is all there is."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry import describe
from symoptim.symmetry.describe import ENTRIES, KindOfUnit, Slice, kinds, remarks, table_of, text_of
from symoptim.symmetry.discover import discover
from symoptim.symmetry.drawing import draw
from symoptim.symmetry.names import NamesByPattern, by_pattern, fitting, parts_of
from symoptim.symmetry.spec import SymmetrySpec
from tests.support.zoo import for_some_animals, group_of


def moved(name: str) -> set[tuple[int, frozenset[str]]]:
    """Kinds of units: how many, and what moves with them."""
    return {(kind.number, frozenset(map(str, kind.slices))) for kind in kinds(group_of(name))}


def test_units_of_arch1_are_pairs_of_rows_and_a_column() -> None:
    assert moved("arch1") == {
        (2, frozenset({"hidden.0.filters.weight rows x a", "hidden.1.filters.weight columns / a"})),
        (2, frozenset({"hidden.1.filters.weight rows x a", "classifier.weight columns / a"})),
    }


def test_what_moves_in_attention_is_named() -> None:
    assert moved("attention by hand") == {
        (4, frozenset({"query.weight rows x a", "query.bias entries x a", "key.weight rows / a"})),
        (4, frozenset({"key.bias entries x a"})),
        (4, frozenset({"value.weight rows x a", "value.bias entries x a", "out.weight columns / a"})),
    }


def test_powers_are_shown() -> None:
    text = text_of(group_of("arch2 training"))
    assert text.startswith("12 rescalings\n")
    assert "hidden.0.norm.running_var entries x a^2" in text
    assert "approximate where eps matters: batch_norm (eps 1e-30) x 2" in text


# Every row is expanded to the names it stands for, and is compared with what generators do to every entry.


def sets_at(pattern: str, number: int) -> str:
    parts = parts_of(pattern)
    return parts[number] if number < len(parts) and parts[number][0] in "*{" else ""


def assignments(row: KindOfUnit, names: NamesByPattern) -> Iterator[dict[int, str]]:
    """Numbers for the layers that the place of a row stands for: those with which all its names occur."""
    layers = [number for number in range(len(parts_of(row.place))) if sets_at(row.place, number)]
    choices: list[list[str]] = []
    for number in layers:
        there = [
            {name.split(".")[number] for name in fitting(one.tensor, names)}
            for one in row.slices
            if sets_at(one.tensor, number)
        ]
        assert there
        assert all(one == there[0] for one in there)
        choices.append(sorted(there[0]))
    for numbers in itertools.product(*choices):
        yield dict(zip(layers, numbers, strict=True))


def at_layers(pattern: str, layers: dict[int, str]) -> str:
    parts = parts_of(pattern)
    for number, layer in layers.items():
        if sets_at(pattern, number):
            parts[number] = layer
    return ".".join(parts) + "".join(pattern.partition(" ")[1:])


def expanded(spec: SymmetrySpec) -> Counter[tuple[str, frozenset[str]]]:
    """What the rows of a table say: places, and the slices that move there."""
    names, found = by_pattern([*spec.tensors, *spec.aliases]), Counter[tuple[str, frozenset[str]]]()
    for row in table_of(spec):
        units = 0
        for layers in assignments(row, names):
            slices = frozenset(
                f"{name}{one.moved}"
                for one in row.slices
                for name in fitting(at_layers(one.tensor, layers), names)
                if name in spec.tensors
            )
            place = at_layers(row.place, layers)
            found[place, slices] += 1
            units += sum(
                kind.number
                for kind in kinds(spec)
                if (kind.place, frozenset(map(str, kind.slices))) == (place, slices)
            )
        assert units == row.number
    return found


def is_composed(values: Tensor, slices: Sequence[Slice]) -> bool:
    """Whether log-scales of entries are sums of some slices along each axis, of all these powers."""
    whole = sum(one.exponent for one in slices if one.axis is None)
    if any(one.axis == ENTRIES for one in slices):
        return set(values.flatten().tolist()) - {0.0} == {one.exponent for one in slices}
    powers = [{0.0, *(one.exponent for one in slices if one.axis == axis)} for axis in range(values.dim())]
    rest = values - whole
    for first in itertools.product(*powers[1:]):
        # Along each axis the values where all other positions are the first one.
        along: list[Tensor] = []
        for axis in range(values.dim()):
            line = rest
            for other in reversed(range(values.dim())):
                line = line.select(other, 0) if other != axis else line
            along.append(line)
        origin = along[0][0].clone() if along else rest
        starts = [float(origin) - sum(first), *first]
        parts = [line - origin + start for line, start in zip(along, starts, strict=True)]
        total = torch.zeros(())
        for axis, part in enumerate(parts):
            total = total + part.reshape([-1 if k == axis else 1 for k in range(values.dim())])
        fits = all(set(part.tolist()) | {0.0} == power for part, power in zip(parts, powers, strict=True))
        if torch.equal(total.expand_as(rest), rest) and fits:
            return True
    return False


def check_kinds(spec: SymmetrySpec) -> None:
    """Each generator does exactly what its kind says."""
    for kind in kinds(spec):
        for number in kind.generators:
            element = torch.zeros(len(spec), dtype=torch.float64)
            element[number] = 1.0
            for name, scales in spec.log_scales(element).items():
                values = scales.expand(spec.tensors[name].shape).round(decimals=6)
                assert is_composed(values, [one for one in kind.slices if one.tensor == name]), (name, kind)
    assert sorted(number for kind in kinds(spec) for number in kind.generators) == list(range(len(spec)))


def numbers(places: str) -> set[int]:
    """The numbers that places stand for, if all of them are said."""
    runs = [run.partition("..") for run in places.split(",")]
    return {k for first, _, last in runs for k in range(int(first), int(last or first) + 1)}


def check_places(spec: SymmetrySpec) -> None:
    """The slices that a kind has are those its generators move."""
    for kind in kinds(spec):
        for one in kind.slices:
            if not one.places or ",..," in one.places or sum(s.tensor == one.tensor for s in kind.slices) > 1:
                continue
            moved: set[int] = set()
            for number in kind.generators:
                element = torch.zeros(len(spec), dtype=torch.float64)
                element[number] = 1.0
                scales = spec.log_scales(element)[one.tensor].expand(one.shape)
                axes = [axis for axis in range(len(one.shape)) if axis != one.axis]
                alike = (
                    (scales.round(decimals=6) == one.exponent).all(axes) if axes else scales == one.exponent
                )
                moved |= set(alike.nonzero().flatten().tolist())
            assert numbers(one.places) == moved, (kind, one)


def check_table(spec: SymmetrySpec) -> None:
    said = Counter((kind.place, frozenset(map(str, kind.slices))) for kind in kinds(spec))
    assert expanded(spec) == said


@for_some_animals
def test_every_row_is_true_as_it_reads(name: str) -> None:
    check_kinds(group_of(name))
    check_places(group_of(name))
    check_table(group_of(name))


@for_some_animals
def test_every_row_of_a_short_table_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "FEW", 0)
    check_table(group_of(name))


class Block(nn.Module):
    """Of its layers the last alone is read by what lets no scale pass."""

    def __init__(self, *, last: nn.Module) -> None:
        super().__init__()
        self.m = nn.ModuleList([nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 4), last, nn.Linear(4, 4)])

    def forward(self, x: Tensor) -> Tensor:
        hidden = x
        for module in self.m:
            hidden = module(hidden)
        return x + hidden


def of(*blocks: nn.Module) -> SymmetrySpec:
    return discover(nn.Sequential(*blocks), (torch.rand(2, 4),))


def rows(spec: SymmetrySpec) -> list[str]:
    return [f"{kind.number} {', '.join(map(str, kind.slices))}" for kind in table_of(spec)]


def test_layers_that_move_alike_are_one_row() -> None:
    spec = of(*(Block(last=nn.Tanh()) for _ in range(13)))
    check_table(spec)
    assert rows(spec) == ["39 *.m.0.weight rows x a, *.m.0.bias entries x a, *.m.2.weight columns / a"]


def test_of_a_mixed_stack_the_layers_are_named() -> None:
    spec = of(*(Block(last=nn.Tanh() if k in (2, 5) else nn.ReLU()) for k in range(13)))
    check_table(spec)
    assert rows(spec) == [
        "39 *.m.0.weight rows x a, *.m.0.bias entries x a, *.m.2.weight columns / a",
        "44 {0,1,3,4,6..12}.m.2.weight rows x a, {0,1,3,4,6..12}.m.2.bias entries x a, "
        "{0,1,3,4,6..12}.m.4.weight columns / a",
    ]


class Branches(nn.Module):
    """Norms that are each read by branches, some of which do not move."""

    def __init__(self) -> None:
        super().__init__()
        self.n = nn.ModuleList(nn.LayerNorm(4) for _ in range(5))
        self.b = nn.ModuleList(nn.ModuleList(nn.Linear(4, 4) for _ in range(3)) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        for k, (norm, branches) in enumerate(zip(self.n, self.b, strict=True)):
            y = norm(x)
            for j, branch in enumerate(branches):
                x = x + branch(y) if (k, j) != (2, 1) else x + torch.relu(branch(x))
        return x


def test_what_one_unit_moves_in_several_branches_is_told_from_what_each_layer_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(describe, "FEW", 0)
    spec = of(Branches(), nn.Linear(4, 2))
    check_kinds(spec)
    check_table(spec)
    norms = "0.n.{0,1,3,4}.weight entries x a, 0.n.{0,1,3,4}.bias entries x a, "
    assert f"16 {norms}0.b.{{0,1,3,4}}.*.0.weight columns / a" not in rows(spec)
    assert f"16 {norms}0.b.{{0,1,3,4}}.*.weight columns / a" in rows(spec)
    assert any("0.b.2.{0,2}.weight" in row for row in rows(spec))


def test_of_rows_and_columns_of_one_tensor_both_are_named() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.loop, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden = torch.relu(self.first(x))
            for _ in range(2):
                hidden = torch.relu(hidden + self.loop(hidden))
            return self.last(hidden)

    spec = discover(Loop(), (torch.rand(2, 3),))
    check_kinds(spec)
    assert {"loop.weight rows x a", "loop.weight columns / a"} <= set(map(str, kinds(spec)[0].slices))


def test_the_mode_the_paths_and_what_was_not_used_are_said() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4).eval(), nn.Dropout().eval())
    spec = discover(model, (torch.rand(5, 3),))
    spec = replace(spec, unreached=("experts.0.up", "experts.1.up", "experts.2.up"), paths=("A sentence.",))
    assert remarks(spec)[0] == "found in training mode, {1,2} in evaluation mode"
    assert remarks(spec)[-2:] == [
        "parameters that no example used, so that what could meet them is pinned: experts.{0..2}.up",
        "A sentence.",
    ]
    assert "A sentence." in draw(spec)


class Fused(nn.Module):
    """Attention by one matrix for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        return self.out((query @ key.mT).softmax(-1) @ value)


def test_parts_of_one_tensor_are_told_from_each_other() -> None:
    torch.manual_seed(0)
    shown = text_of(discover(Fused(), (torch.rand(2, 5, 4),)))
    assert "qkv.weight rows 4..7 / a" in shown
    assert "qkv.weight rows 0..3 x a, qkv.bias entries 0..3 x a" in shown
    assert "qkv.weight rows 8..11 x a, qkv.bias entries 8..11 x a, out.weight columns / a" in shown
    assert "qkv.bias entries 4..7 x a\n" in shown  # of keys, which softmax does not see


def test_rows_of_gpt2_say_which_columns_of_the_fused_matrix_they_are_about() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=3, n_head=2, n_embd=8, vocab_size=30, n_positions=16)
    tokens = torch.randint(30, (2, 7))
    spec = discover(
        transformers.GPT2LMHeadModel(config).eval(), (), {"input_ids": tokens, "use_cache": False}
    )
    fused = [
        {str(one) for one in kind.slices if one.tensor.endswith(".attn.c_attn.weight") and one.axis == 1}
        for kind in table_of(spec)
    ]
    name = "transformer.h.*.attn.c_attn.weight columns"
    assert [some for some in fused if some] == [
        {f"{name} 0..7 x a", f"{name} 8..15 / a"},
        {f"{name} 16..23 x a"},
    ]

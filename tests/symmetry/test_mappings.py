"""Mappings for quantization, read off a group."""

import torch
from torch import nn

from symmetry.zoo import group_of
from symoptim.symmetry.discover import discover
from symoptim.symmetry.mappings import Mapping, as_yaml, mappings


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
        r"  - smooth_layer: 're:^h\.\d+\.ln_1$'  # 3 times 4 or 5 or 6 channels",
        r"    balance_layers: ['re:^h\.\d+\.q$', 're:^h\.\d+\.k$']",
    ]


def test_a_plain_network_has_its_pairs() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert mappings(discover(model, (torch.rand(5, 3),))) == [Mapping("0", ("2",), 4)]

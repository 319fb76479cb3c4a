import re

import pytest
from torch import nn

from symoptim.bench import cases
from symoptim.bench.cases import Weight, case_named, gpt_shapes
from symoptim.errors import OptionError
from symoptim.optim.param_groups import param_groups


@pytest.mark.parametrize("name", ["resnet50", "gpt2", "gpt-1.3b", "tiny", "matrix", "segnet"])
def test_a_case_is_what_the_list_says(name: str) -> None:
    said = re.search(rf"{name} +(\d+) tensors?, ([\d.]+) ([MB]) ", cases.__doc__ or "")
    assert said
    tensors, number, unit = said.groups()
    case = case_named(name)
    assert len(case.weights) == int(tensors)
    assert case.elements / {"M": 1e6, "B": 1e9}[unit] == pytest.approx(float(number), rel=0.005)


def test_a_networks_weights_have_the_roles_of_their_layers() -> None:
    case = case_named("resnet50")
    assert case.network is not None
    model = case.network().model
    assert [w.shape for w in case.weights] == [tuple(p.shape) for p in model.parameters()]
    by_geometry = {group["geometry"]: len(group["params"]) for group in param_groups(model)}
    assert by_geometry == {"rows": 53, "columns": 1, "plain": 107}
    assert sum(w.geometry == "rows" for w in case.weights) == 53


def test_a_gpt_has_maps_of_its_width() -> None:
    embedding, gain, attention, *_ = gpt_shapes(layers=2, width=8, vocabulary=11)
    assert (embedding, gain) == (Weight((11, 8), "plain"), Weight((8,), "plain"))
    assert attention == Weight((24, 8))
    assert nn.Linear(8, 24).weight.shape == attention.shape


def test_an_unknown_case_is_named() -> None:
    with pytest.raises(OptionError, match="unknown case 'resnet'; choose from resnet50, "):
        case_named("resnet")

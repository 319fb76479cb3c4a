"""Operations on single entries."""

import torch
from torch import nn
from torch.nn.functional import glu

from symmetry.oracle import exact, true_dimension
from symmetry.soundness import changes
from symmetry.zoo.animal import Lambda, rand
from symoptim.symmetry.discover import discover
from symoptim.symmetry.interpret import interpret
from symoptim.symmetry.record import record


def test_one_half_of_a_gated_unit_is_free_and_the_gate_is_pinned() -> None:
    model = exact(
        Lambda(
            lambda self, x: self.head(glu(self.first(x), dim=-1)), first=nn.Linear(3, 8), head=nn.Linear(4, 2)
        )
    )
    inputs = rand(8, 3)
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert len(spec) == 4 == true_dimension(model, inputs)
    assert not changes(spec, model, arguments)
    assert not interpret([record(model, arguments)]).unknown

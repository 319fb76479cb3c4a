"""Paths that do the same operations on other values are told apart."""

import pytest
import torch

from symoptim import discover
from tests.support.same_operations import SAME_OPERATIONS

TOLD_APART = {"swapped by value": 6, "swapped by length": 6, "cut by length": 3}
"""Generators that hold on both paths; twelve, or six, hold on one."""


@pytest.mark.parametrize("name", TOLD_APART)
def test_what_is_found_holds_on_both_paths(name: str) -> None:
    torch.manual_seed(0)
    case = SAME_OPERATIONS[name]
    assert len(discover(case.make(), case.example)) == TOLD_APART[name]

"""Kernels of hidden layers: results are the same in the process that compiles them and in later ones."""

from pathlib import Path

import pytest

from tests.support.two_processes import outputs

pytest.importorskip("numba", reason="layers are compiled by numba")

SCRIPT = """
import hashlib
import numpy as np
from symoptim.ensemble.fast import numba_layers, sparse_products
h, d = np.random.default_rng(0).normal(size=(2, 2, 64, 100)).astype(np.float32)
gamma, shift, scale, left, right = np.random.default_rng(1).normal(size=(5, 2, 64)).astype(np.float32)
numba_layers.to_responses(h, d, gamma, shift, scale, left, right)
sparse_products.make_unit(h, d.sum(axis=1))
print(hashlib.sha256(b"".join(x.tobytes() for x in (h, d, left, right))).hexdigest())
"""


def test_results_are_bit_identical_in_the_compiling_process_and_in_later_ones(tmp_path: Path) -> None:
    first, second = outputs(SCRIPT, tmp_path)
    assert first == second

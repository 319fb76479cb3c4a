"""The public names of ``symoptim.ensemble``: exactly these, documented, and cheap to import."""

import inspect
import subprocess
import sys

import pytest

from symoptim import ensemble

PUBLIC = {
    "UPDATES",
    "Bold",
    "Constant",
    "Cosine",
    "Driven",
    "EarlyStopping",
    "Ensemble",
    "Epoch",
    "Exponential",
    "FixedEpochs",
    "Full",
    "Outcome",
    "Pure",
    "Result",
    "Run",
    "Split",
}


def test_public_names_are_exactly_these_and_documented() -> None:
    assert set(ensemble.__all__) == PUBLIC
    assert set(dir(ensemble)) >= PUBLIC
    assert all(inspect.getdoc(getattr(ensemble, name)) for name in PUBLIC)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Trainer_'"):
        _ = ensemble.Trainer_  # pyright: ignore


def test_a_run_is_described_without_torch() -> None:
    code = (
        "import sys; from symoptim.ensemble import Bold, FixedEpochs, Run;"
        "Run(update='sm', rate=0.1, schedule=Bold(), stopping=FixedEpochs(maximum=2), seed=0, train=9,"
        "    validation=1).as_dict(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

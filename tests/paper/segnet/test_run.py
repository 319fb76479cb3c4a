import dataclasses
import json

import pytest

from symoptim.ensemble.run import Cosine, EarlyStopping
from symoptim.errors import OptionError
from tests.support.small_scenes import EVERYTHING, a_scene_run


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": -0.1}, "rate must be a finite number above 0, got -0.1"),
        ({"rate": float("nan")}, "rate must be a finite number above 0, got nan"),
        ({"rate": float("inf")}, "rate must be a finite number above 0, got inf"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"measure_every": 0}, "measure_every must be at least 1, got 0"),
        ({"update": "b-sgd", "rate": 0.1}, "unknown update 'b-sgd'; choose from un, un-momentum, sm, sgd"),
        ({"schedule": "cosine"}, "schedule must be one of Constant, Exponential, Bold, Cosine, got 'cosine'"),
    ],
)
def test_bad_options_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        a_scene_run(**changes)


def test_a_run_trains_a_fixed_number_of_epochs() -> None:
    with pytest.raises(OptionError, match=r"train a fixed number of epochs, got EarlyStopping\("):
        dataclasses.replace(a_scene_run(), stopping=EarlyStopping())


def test_a_run_is_plain_data_for_the_records() -> None:
    plain = a_scene_run("sm", epochs=7, schedule=Cosine(epochs=7), augmentation=EVERYTHING).as_dict()
    recorded = json.loads(json.dumps(plain))
    assert recorded["schedule"] == {"kind": "Cosine", "epochs": 7}
    assert recorded["stopping"] == {"kind": "FixedEpochs", "maximum": 7}
    assert [recorded["augmentation"][name] for name in ("zoom", "flip", "crop")] == [
        [0.6, 1.2],
        True,
        [14, 20],
    ]
    assert (recorded["update"], recorded["seed"], recorded["batch"]) == ("sm", 0, 4)
    assert (recorded["weighting"], recorded["measure_every"]) == ("root", 1)

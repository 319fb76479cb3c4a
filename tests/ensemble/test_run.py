import json

import pytest

from symoptim.ensemble import Bold, Cosine, EarlyStopping, Exponential, FixedEpochs
from symoptim.errors import OptionError
from tests.support.small import a_run


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exponential(decay=2.0), r"decay must be in \(0, 1\], got 2.0"),
        (lambda: Bold(grow=0.9), "grow must be a finite number >= 1, got 0.9"),
        (lambda: Bold(shrink=1.0), r"shrink must be in \(0, 1\), got 1.0"),
        (lambda: Cosine(epochs=0), "a cosine needs at least 1 epoch, got 0"),
        (lambda: FixedEpochs(maximum=0), "at least 1 epoch, got 0"),
        (lambda: EarlyStopping(minimum=5, maximum=4), "got 5 and 4"),
        (lambda: EarlyStopping(minimum=3, maximum=4, lookback=5), "lookback must be in 1..3"),
        (lambda: a_run(rate=0.0), "rate must be a finite number above 0, got 0.0"),
        (lambda: a_run(rate=float("nan")), "rate must be a finite number above 0, got nan"),
        (lambda: a_run(schedule=3), "schedule must be one of Constant, Exponential, Bold, Cosine, got 3"),
        (lambda: a_run(stopping=10), "stopping must be one of FixedEpochs, EarlyStopping, got 10"),
        (lambda: a_run(train=0), "at least 1 image, got 0 and 40"),
    ],
)
def test_bad_options_are_refused(make, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


def test_a_run_is_plain_data_for_the_records() -> None:
    plain = a_run(schedule=Exponential(decay=0.9)).as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["schedule"] == {"kind": "Exponential", "decay": 0.9}
    assert plain["stopping"] == {"kind": "FixedEpochs", "maximum": 3}
    assert a_run(schedule=Cosine(epochs=9)).as_dict()["schedule"] == {"kind": "Cosine", "epochs": 9}

"""Records of a small experiment, made once."""

from pathlib import Path

import pytest
import torch

from symoptim.paper.records.database import Records
from symoptim.paper.table2.experiment import Experiment
from tests.paper.table2.test_experiment import SMALL
from tests.support.small import small_data


class Silent:
    """A watcher that does not care."""

    def expect(self, **_: int) -> None:
        pass

    def skip(self, **_: int) -> None:
        pass

    def epoch(self, *_: object, **__: int) -> None:
        pass


@pytest.fixture(scope="session")
def undisturbed_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "records.sqlite"
    with Records(path, torch=torch.__version__, device="cpu") as records:
        titles = {"sm": "SM", "adamw": "AdamW"}
        configuration = {"profile": "quick", "data": "digits", "digest": "abc", "titles": titles}
        configuration |= {"protocol": SMALL.as_dict()}
        records.begin("mnist", configuration)
        Experiment(SMALL, small_data(torch.float32), torch.device("cpu"), records, Silent()).carry_out()
    return path

"""Records of a small SegNet experiment, made once."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from symoptim.paper.records.database import Records
from symoptim.paper.runner import train
from symoptim.paper.segnet.experiment import SegNetExperiment
from symoptim.paper.segnet.protocol import SegNetProtocol
from symoptim.paper.segnet.scores import Scores
from symoptim.paper.segnet.summary import SceneSummary, summarize_scenes
from symoptim.paper.updates import info
from tests.support import small_segnet
from tests.support.small_scenes import small_scenes
from tests.support.small_segnet import carry_out

SMALL = replace(
    small_segnet.SMALL,
    updates=("un", "sgd"),
    epochs=2,
    measure_every=1,
    augmentation=SegNetProtocol().augmentation,
    rates=(1e-3, 0.1, 1e30),  # the last one diverges
    search_epochs=1,
)


@pytest.fixture(scope="session")
def scene_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenes") / "records.sqlite"
    experiment = SegNetExperiment(SMALL, small_scenes(), torch.device("cpu"), "paper", "camvid")
    with Records(path, torch=torch.__version__, device="cpu") as records:
        records.begin("segnet", experiment.configuration())
        train(experiment, records)
    return path


@pytest.fixture
def scene_folder(scene_records: Path, tmp_path: Path) -> Path:
    """A folder of its own with these records."""
    (tmp_path / "records.sqlite").write_bytes(scene_records.read_bytes())
    return tmp_path


@pytest.fixture
def scene_summary(scene_records: Path) -> SceneSummary:
    return summarize_scenes(scene_records)


def asked_otherwise(folder: Path, **changes: object) -> None:
    """Change what the records of a folder say was asked for."""
    with sqlite3.connect(folder / "records.sqlite") as connection:
        (text,) = connection.execute("SELECT configuration FROM experiment").fetchone()
        connection.execute(
            "UPDATE experiment SET configuration = ?", (json.dumps(json.loads(text) | changes),)
        )


Sample = Sequence[float]


def scores(mean_ious: Sample) -> tuple[Scores, ...]:
    return tuple(Scores(0.9, 0.7, score, (), ()) for score in mean_ious)


def scored(
    summary: SceneSummary, test: Mapping[str, Sample], validation: Mapping[str, Sample] | None = None
) -> SceneSummary:
    """Runs of these updates with these mean IoUs; on the validation set the same, unless it is said."""
    first = summary.results[0].runs[0]
    results = [
        summary.results[0]._replace(
            update=update,
            title=info(update).title,
            runs=tuple(
                first._replace(labels={**first.labels, "repeat": number}) for number in range(len(those))
            ),
            test=scores(those),
            validation=scores((validation or test)[update]),
        )
        for update, those in test.items()
    ]
    return summary._replace(results=results, finalists=[])


@pytest.fixture(scope="session")
def undisturbed_scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "records.sqlite"
    watcher = carry_out(path)
    assert watcher.seen == watcher.expected
    return path

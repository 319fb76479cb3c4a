"""A SegNet experiment so small that tests can carry it out many times."""

from pathlib import Path

import torch

from symoptim.paper.records.database import Records
from symoptim.paper.runner import train
from symoptim.paper.segnet.augment import Augmentation
from symoptim.paper.segnet.experiment import SegNetExperiment
from symoptim.paper.segnet.protocol import SegNetProtocol
from tests.support.small_scenes import small_scenes
from tests.support.watchers import Counter

SMALL = SegNetProtocol(
    updates=("un", "adamw"),
    network="segnet-basic",
    features=4,
    size=(16, 24),
    epochs=3,
    repeats=2,
    batch=4,
    measure_every=2,
    augmentation=Augmentation(zoom=(0.8, 1.2), flip=True),
    rates=(1e-3, 0.02, 0.1),
    search_epochs=2,
    search_crop=(8, 16),
    finalists=2,
)
EPOCHS = 2 * (3 * 2 + 2 * 3 + 1 * 3)  # of both updates: three searches, two finalists, one more repeat


def carry_out(path: Path, *, protocol: SegNetProtocol = SMALL, patience: int = 10**9) -> Counter:
    watcher = Counter(patience)
    with Records(path, torch=torch.__version__, device="cpu") as records:
        if records.begin("segnet", {"protocol": protocol.as_dict()}):
            train(SegNetExperiment(protocol, small_scenes(), torch.device("cpu")), records, watcher)
    return watcher

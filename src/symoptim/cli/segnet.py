"""Carrying out the SegNet experiment for the command line."""

from pathlib import Path

import torch
from rich.console import Console

from symoptim.cli.progress import loss_and_score
from symoptim.cli.working import work_on
from symoptim.errors import DataError, OptionError
from symoptim.paper.data.camvid import has_camvid
from symoptim.paper.data.classes import CLASSES
from symoptim.paper.data.datasets import digest_of, load_scenes
from symoptim.paper.data.scenes import Scenes, SceneSplit
from symoptim.paper.names import ProfileName, SceneDataChoice, SceneDataName
from symoptim.paper.segnet.experiment import SegNetExperiment
from symoptim.paper.segnet.labels import class_weights
from symoptim.paper.segnet.protocol import SegNetProtocol
from symoptim.paper.segnet.updates import SCENE_UPDATES


def choose_scenes(data: SceneDataChoice, directory: Path | None, profile: ProfileName) -> SceneDataName:
    """Name of the scenes that were asked for, or of the best there are.

    Args:
        data: their name, or ``auto``.
        directory: where CamVid is.
        profile: the experiment in full takes nothing but CamVid for ``auto``.

    Returns:
        The name.

    Raises:
        DataError: CamVid is needed and not there.
    """
    if data == "roads" and directory is not None:
        raise OptionError(f"drawn scenes need no files: leave out --data-dir {directory}, or --data roads")
    if data != "auto":
        return data
    if has_camvid(directory) or directory is not None:  # a place that was named is looked into, and judged
        return "camvid"
    how = "CamVid is free for research and not downloaded: give --data-dir, or set SYMOPTIM_DATA"
    if profile == "paper":
        raise DataError(f"there is no CamVid. {how}; --profile quick can do without")
    console = Console(stderr=True)
    console.print(f"notice: no CamVid here, so these are drawn road scenes. {how}.", highlight=False)
    return "roads"


def carry_out_segnet(
    protocol: SegNetProtocol,
    path: Path,
    *,
    profile: ProfileName,
    data: SceneDataName,
    directory: Path | None,
    device: torch.device,
    compiled: bool,
) -> None:
    """Train what the records at ``path`` do not have yet.

    Args:
        protocol: what to train.
        path: of the records file.
        profile: name of the protocol's size.
        data: name of the scenes.
        directory: where they are.
        device: where to train.
        compiled: whether steps go through ``torch.compile``.
    """
    console = Console(stderr=True)
    with console.status(f"loading {data}"):
        scenes = load_scenes(data, directory, protocol.size)
        digest = _digest(scenes)
    _require_trainable(protocol, scenes.train)
    configuration = {
        "profile": profile,
        "data": data,
        "digest": digest,
        "images": [len(part.names) for part in scenes],
        "protocol": protocol.as_dict(),
        "compiled": compiled,
        "titles": {name: SCENE_UPDATES[name].title for name in protocol.updates},
        "words": {name: SCENE_UPDATES[name].words for name in protocol.updates},
    }
    work_on(
        path,
        "segnet",
        configuration,
        device,
        lambda records, watcher: SegNetExperiment(
            protocol, scenes, device, records, watcher, compiled=compiled
        ).carry_out(),
        describe=loss_and_score,
    )


def _require_trainable(protocol: SegNetProtocol, train: Scenes) -> None:
    """Refuse scenes that cannot be learnt from, before anything is recorded about them."""
    if len(train.names) < protocol.batch:
        raise DataError(
            f"there are {len(train.names)} training images, and a batch takes {protocol.batch}: get more"
        )
    class_weights(train.labels, len(CLASSES), protocol.weighting)


def _digest(scenes: SceneSplit) -> str:
    return digest_of(tensor for part in scenes for tensor in (part.images, part.labels))

"""Carrying out the MNIST experiment for the command line."""

from pathlib import Path

import torch
from rich.console import Console

from symoptim.cli.progress import DownloadBar
from symoptim.cli.working import work_on
from symoptim.ensemble.images import Split
from symoptim.ensemble.registry import UPDATES
from symoptim.errors import DataError
from symoptim.paper.experiments.datasets import digest_of, load
from symoptim.paper.experiments.names import DataChoice, DataName, ProfileName
from symoptim.paper.experiments.protocol import Protocol
from symoptim.paper.experiments.reproduce import Experiment


def find_images(data: DataChoice, directory: Path | None, profile: ProfileName) -> tuple[DataName, Split]:
    """Load the data set that was asked for, or the best there is.

    Args:
        data: its name, or ``auto``.
        directory: where its files are.
        profile: the paper's experiment in full takes nothing but MNIST for ``auto``.

    Returns:
        Name and images.

    Raises:
        DataError: they cannot be had.
    """
    console = Console(stderr=True)
    name: DataName = "mnist" if data == "auto" else data
    try:
        return name, load(name, directory, progress=DownloadBar(console))
    except DataError as error:
        if data != "auto" or profile == "paper" or directory is not None:
            raise
        console.print(f"notice: MNIST could not be had, so these are 8x8 digits. {error}", highlight=False)
        return "digits", load("digits")


def carry_out(
    protocol: Protocol,
    path: Path,
    *,
    profile: ProfileName,
    data: DataName,
    images: Split,
    device: torch.device,
) -> None:
    """Train what the records at ``path`` do not have yet.

    Args:
        protocol: what to train.
        path: of the records file.
        profile: name of the protocol's size.
        data: name of the images.
        images: what to train on.
        device: where to train.
    """
    protocol.require_images(len(images.train_labels))
    configuration = {
        "profile": profile,
        "data": data,
        "digest": digest_of(images),
        "protocol": protocol.as_dict(),
        "titles": {name: UPDATES[name].title for name in protocol.updates},
    }
    work_on(
        path,
        "mnist",
        configuration,
        device,
        lambda records, watcher: Experiment(
            protocol, images.to(device), device, records, watcher
        ).carry_out(),
    )

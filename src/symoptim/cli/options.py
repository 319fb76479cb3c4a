"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Option

from symoptim.paper.choices import (
    Classifier,
    DataChoice,
    DataName,
    ProfileName,
    SceneDataChoice,
    SceneScheduleName,
    Weighting,
)

Profile = Annotated[ProfileName, Option(help="quick: minutes on a laptop; paper: in full, for a GPU.")]
Data = Annotated[DataName, Option(help="Data set.")]
DataOrAuto = Annotated[DataChoice, Option(help="Data set; auto is MNIST, or digits if it cannot be had.")]
SceneData = Annotated[
    SceneDataChoice, Option(help="Scenes; auto is CamVid, or drawn road scenes if it is not there.")
]
SceneDir = Annotated[Path | None, Option(help="Folder or zip file with CamVid; else SYMOPTIM_DATA.")]
SceneProfile = Annotated[
    ProfileName | None,
    Option(
        help="quick: minutes on a laptop; paper: in full, for a GPU.",
        show_default="paper on a GPU, quick on a CPU",
    ),
]
SceneUpdates = Annotated[
    str | None,
    Option(
        help="Of un, un-momentum, sm, sgd, sgd-plain, adamw, invariant-adamw.",
        show_default="quick un; paper un,sm,sgd,sgd-plain,adamw",
    ),
]
SceneEpochs = Annotated[int | None, Option(help="Epochs of a full run.", show_default="quick 12, paper 100")]
SceneRepeats = Annotated[int | None, Option(help="Runs of every update.", show_default="quick 1, paper 3")]
SceneSchedule = Annotated[SceneScheduleName, Option(help="How the rate changes from epoch to epoch.")]
SceneWeighting = Annotated[Weighting, Option(help="Class weights: median frequency, or its square root.")]
Rates = Annotated[
    str | None,
    Option(
        help="Candidate rates, tried in short runs by every update; 'none' takes the registered ones.",
        show_default="quick none; paper 9 from 3e-05 to 0.3",
    ),
]
Compiled = Annotated[bool, Option("--compile", help="Train through torch.compile; for CUDA only.")]
DataDir = Annotated[Path | None, Option(help="Folder with its files; else SYMOPTIM_DATA, else downloaded.")]
Device = Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")]
Seed = Annotated[int, Option(help="Of everything random.")]
Out = Annotated[Path | None, Option(help="Folder of the results.", show_default="results/DATA-PROFILE")]
Repeats = Annotated[int | None, Option(help="Repeats of every cell.", show_default="quick 3, paper 10")]
Updates = Annotated[str, Option(help="Columns, of b-sgd, sm, un, full, geometric, adamw, invariant-adamw.")]
Grow = Annotated[float, Option(help="Factor of the bold driver when the loss is not higher.")]
Shrink = Annotated[float, Option(help="Factor of the bold driver when it is.")]
Start = Annotated[Classifier, Option(help="What of the classifier starts with unit norm.")]

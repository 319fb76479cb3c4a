"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Option

from symoptim.experiments.names import Classifier, DataChoice, DataName, ProfileName

Profile = Annotated[ProfileName, Option(help="quick: minutes on a laptop; paper: in full, for a GPU.")]
Data = Annotated[DataName, Option(help="Data set.")]
DataOrAuto = Annotated[DataChoice, Option(help="Data set; auto is MNIST, or digits if it cannot be had.")]
DataDir = Annotated[Path | None, Option(help="Folder with its files; else SYMOPTIM_DATA, else downloaded.")]
Device = Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")]
Seed = Annotated[int, Option(help="Of everything random.")]
Out = Annotated[Path | None, Option(help="Folder of the results.", show_default="results/DATA-PROFILE")]
Repeats = Annotated[int | None, Option(help="Repeats of every cell.", show_default="quick 3, paper 10")]
Updates = Annotated[str, Option(help="Columns, of b-sgd, sm, un, adamw, invariant-adamw.")]
Grow = Annotated[float, Option(help="Factor of the bold driver when the loss is not higher.")]
Shrink = Annotated[float, Option(help="Factor of the bold driver when it is.")]
Start = Annotated[Classifier, Option(help="What of the classifier starts with unit norm.")]

"""The reproduction from Python: an experiment by its name, trained, recorded and reported.

>>> from symoptim.paper import reproduce
>>> report = reproduce("table2", profile="quick", out="results", repeats=1)  # doctest: +SKIP
>>> report.summary.cells, report.paths  # doctest: +SKIP
"""

import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from symoptim.paper.choices import ExperimentName, ProfileName, require_choice
from symoptim.paper.registry import EXPERIMENTS
from symoptim.paper.report.html import Report
from symoptim.paper.table2.figures import draw_architectures

if TYPE_CHECKING:
    from symoptim.paper.data.sources import ProgressBar
    from symoptim.paper.runner import Watch

log = logging.getLogger(__name__)


def reproduce(
    name: ExperimentName,
    *,
    profile: str | None = None,
    data: str | None = None,
    data_dir: Path | str | None = None,
    out: Path | str | None = None,
    device: str = "auto",
    progress: "Watch | None" = None,
    notice: Callable[[str], None] = log.warning,
    download: "ProgressBar | None" = None,
    **overrides: Any,
) -> Report:
    """Train an experiment of the paper, as far as its records do not have it yet, and report on it.

    Args:
        name: table2, trajectories (of the same runs), segnet, invariance, or architectures, which are drawn.
        profile: quick, or paper for the whole protocol; by default quick, and for segnet on a GPU paper.
        data: name of the data set; by default the best there is.
        data_dir: where its files are; by default what ``SYMOPTIM_DATA`` names.
        out: folder of records and results; by default below ``results``.
        device: auto, cpu, cuda or cuda:N.
        progress: is called with a :class:`symoptim.paper.runner.Progress` after every epoch.
        notice: is called with a sentence where something is not as one may expect.
        download: progress bar of downloads, as pooch calls it.
        **overrides: fields of the experiment's protocol, such as ``repeats``, ``seed``, ``updates``; those
            that are None change nothing. For segnet ``compiled`` too.

    Returns:
        The name of the experiment, a summary of its records, and the files.

    Raises:
        OptionError: an option breaks a rule; nothing has been done yet.
        ModuleNotFoundError: the packages of the extra ``paper`` are not installed.
    """
    try:
        import_module("numpy")  # before torch, which warns where there is none
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "reproducing the paper needs numpy and other packages of the extra paper: in a clone, "
            "pip install '.[paper]'",
            name="numpy",
        ) from error
    folder = None if out is None else Path(out)
    if name == "architectures":
        where = folder or Path("results") / name
        return Report(name, None, draw_architectures(where / name))
    require_choice("experiment", name, get_args(ExperimentName))
    require_choice("profile", profile or "quick", get_args(ProfileName))
    # Torch is slow to import, and nothing before needs it.
    from symoptim.paper.runner import Request, carry_out
    from symoptim.support.devices import device_named

    registered = EXPERIMENTS[name]
    source = None if data_dir is None else Path(data_dir)
    request = Request(profile, data, source, device_named(device), overrides, notice, download)
    experiment = registered.prepare(request)
    where = folder or Path("results") / experiment.folder
    if not carry_out(experiment, where / registered.records, progress):
        notice(f"everything is in {where / registered.records} already; nothing is trained")
    return registered.report(where, where / registered.records)

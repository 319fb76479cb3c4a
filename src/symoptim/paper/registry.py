"""The experiments by name: how each is prepared, which needs torch, and reported, which does not."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from symoptim.errors import RecordsError
from symoptim.paper.invariance import report as invariance
from symoptim.paper.records.runs import read_experiment, reading
from symoptim.paper.report.html import RECORDS, Report
from symoptim.paper.segnet import report as segnet
from symoptim.paper.table2 import report as table2

if TYPE_CHECKING:
    from symoptim.paper.runner import Experiment, Request


class Registered(NamedTuple):
    """An experiment: its module, its records file, and what writes its report."""

    module: str
    records: str
    report: Callable[[Path, Path], Report]

    def prepare(self, request: "Request") -> "Experiment":
        """The experiment with its data."""
        return import_module(self.module).prepare(request)


TABLE2 = Registered("symoptim.paper.table2.experiment", RECORDS, table2.write)
EXPERIMENTS: dict[str, Registered] = {
    "table2": TABLE2,
    "trajectories": TABLE2,
    "segnet": Registered("symoptim.paper.segnet.experiment", RECORDS, segnet.write),
    "invariance": Registered("symoptim.paper.invariance.experiment", invariance.RECORDS, invariance.write),
}
RECORDED = {"mnist": "table2", "segnet": "segnet", "invariance": "invariance"}
"""Names of experiments in the records."""


def write_report(folder: Path) -> Report:
    """Read a folder's records and write the page, its figures, Markdown and CSV."""
    paths = [folder / RECORDS, folder / invariance.RECORDS]
    path = next((path for path in paths if path.is_file()), paths[0])
    with reading(path) as connection:
        name = read_experiment(connection, path).name
    if name not in RECORDED:
        raise RecordsError(f"{folder} has records of '{name}', which there is no report about")
    return EXPERIMENTS[RECORDED[name]].report(folder, path)

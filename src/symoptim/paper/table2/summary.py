"""The files a reproduction leaves: Table 2 and the trajectories, with where they come from."""

import shlex
from pathlib import Path
from typing import NamedTuple

from symoptim.paper.records.runs import (
    RecordedExperiment,
    RecordedRun,
    read_runs,
    reading,
    require_experiment,
)
from symoptim.paper.table2 import cells as table2
from symoptim.paper.table2 import trajectories

SMALLER = "A smaller experiment than the paper's: only the profile paper compares.\n\n"


class Summary(NamedTuple):
    """What the records say, ready to be shown."""

    experiment: RecordedExperiment
    runs: list[RecordedRun]
    cells: list[table2.Cell]
    panels: list[trajectories.Panel]


def summarize(records: Path) -> Summary:
    """Read a records file.

    Args:
        records: the file.

    Returns:
        Its full runs, table and trajectories.
    """
    with reading(records) as connection:
        experiment = require_experiment(connection, records)
        runs = read_runs(connection, "full")
    return Summary(experiment, runs, table2.cells(experiment, runs), trajectories.panels(experiment, runs))


def provenance(experiment: RecordedExperiment) -> str:
    """Where the numbers come from, as Markdown."""
    asked = experiment.configuration
    protocol = asked["protocol"]
    return (
        f"Test error, mean ± standard deviation (n - 1) over {protocol['repeats']} repeats of learning-rate "
        f"selection and full run, seed {protocol['seed']}; {asked['data']}, profile {asked['profile']}. Runs "
        "that diverged (no finite loss, or more than half of the validation images wrong at the end) are "
        f"left out.\n\n{SMALLER if asked['profile'] == 'quick' else ''}{provenance_list(experiment)}"
    )


def provenance_list(experiment: RecordedExperiment) -> str:
    """Command, time, device and code, as Markdown."""
    return "".join(f"- {name}: {value}\n" for name, value in provenance_facts(experiment))


def provenance_facts(experiment: RecordedExperiment) -> list[tuple[str, str]]:
    """Command, time, device and code, by name."""
    first = experiment.sessions[0]
    return [
        ("command", _without_places(first["command"])),
        (
            "time",
            f"{experiment.seconds:.0f} s in {len(experiment.sessions)} session(s), begun {first['begun']}, "
            f"finished {experiment.finished or 'not yet'}",
        ),
        (
            "device",
            f"{experiment.device}; torch {experiment.torch}; Python {first['python']}; {first['platform']}, "
            f"{first['cores']} cores",
        ),
        ("code", f"commit {first['commit'] or 'unknown'}, digest {first['code']}"),
    ]


def _without_places(command: str) -> str:
    """A command without the options that name folders of one machine.

    >>> _without_places("symoptim reproduce segnet --out '/home/me/my runs' --device cpu --data-dir=/data")
    'symoptim reproduce segnet --device cpu'
    """
    words = shlex.split(command)
    places = [k for k, word in enumerate(words) if word.partition("=")[0] in ("--out", "--data-dir")]
    values = [k + 1 for k in places if "=" not in words[k]]
    return shlex.join(word for k, word in enumerate(words) if k not in (*places, *values))

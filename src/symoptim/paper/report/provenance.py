"""Where the numbers of a report come from: command, time, device, code."""

import shlex

from symoptim.paper.records.runs import RecordedExperiment
from symoptim.paper.report.html import Facts


def provenance_facts(experiment: RecordedExperiment) -> Facts:
    """Command, time, device and code, by name."""
    first = experiment.sessions[0]
    return [
        ("command", without_folders(first["command"])),
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


def provenance_list(experiment: RecordedExperiment) -> str:
    """Command, time, device and code, as Markdown."""
    return "".join(f"- {name}: {value}\n" for name, value in provenance_facts(experiment))


def provenance_with_data(experiment: RecordedExperiment) -> Facts:
    """Command, time, device, code and data, by name."""
    config = experiment.configuration
    return [*provenance_facts(experiment), ("data", f"{config['data']}, digest {config['digest']}")]


def without_folders(command: str) -> str:
    """A command without the options that name folders of one machine.

    >>> without_folders("symoptim reproduce segnet --out '/home/me/my runs' --device cpu --data-dir=/data")
    'symoptim reproduce segnet --device cpu'
    """
    words = shlex.split(command)
    folders = [k for k, word in enumerate(words) if word.partition("=")[0] in ("--out", "--data-dir")]
    values = [k + 1 for k in folders if "=" not in words[k]]
    return shlex.join(word for k, word in enumerate(words) if k not in (*folders, *values))

"""Captions that state what figures show, in numbers, and the protocol in words."""

from collections.abc import Sequence

from symoptim.paper.invariance.pairs import Pair
from symoptim.paper.table2.cells import ARCHITECTURES, SCHEDULES, Cell
from symoptim.paper.table2.published import Key
from symoptim.paper.table2.summary import Summary
from symoptim.paper.table2.trajectories import PANELS, Panel

INVARIANCE_WORDS = """One network, one function, two scalings
of its weights; same data, same batches.
Training loss per epoch; the numbers are the
largest relative difference of the curves."""


BEYOND = {
    "full": "full is SGD in the full metric, which no rescaling of the network changes",
    "geometric": "geometric is the same in another gauge",
    "adamw": "AdamW is torch's",
    "invariant-adamw": "invariant AdamW is torch's, in coordinates that do not see how filters are scaled",
}
"""Updates that are not the paper's, in words."""


def trajectories_caption(panels: Sequence[Panel], cells: Sequence[Cell], titles: dict[str, str]) -> str:
    """What the trajectories show, in numbers."""
    ends = {cell.key: cell.mean for cell in cells if cell.errors}
    depth = max((panel.depth for panel in panels), default=0)
    words: list[str] = []
    lower = 0
    for update in dict.fromkeys(panel.update for panel in panels):
        first, second = (ends.get(Key(depth, schedule, network, update)) for network, schedule in PANELS)
        if first is not None and second is not None:
            lower += second < first
            words.append(f"{titles[update]} {first:.4f} and {second:.4f}")
    networks = " and ".join(f"{depth}-layer {ARCHITECTURES[a]} with {SCHEDULES[s]}" for a, s in PANELS)
    if not words:
        return f"Test error of {networks}: there are not enough runs to compare them."
    return (
        f"Arch2 with the bold driver ends lower for {lower} of {len(words)} updates. Mean test error of "
        f"{networks}: {', '.join(words)}. Dotted: mean over the runs that got that far; band: one standard "
        "deviation; gray: how many runs that is."
    )


def invariance_caption(pairs: Sequence[Pair]) -> str:
    """What the invariance picture shows, in numbers."""
    split = [max(pair.gaps) for pair in pairs if pair.update == "b-sgd"]
    others = [max(pair.gaps) for pair in pairs if pair.update != "b-sgd"]
    return (
        f"From two scalings of one network plain SGD's loss curves part by up to "
        f"{max(split, default=0):.0%}, those of SM and UN agree to {max(others, default=0):.0e} (float64, "
        "one seed). UN has no panel for Arch1: there it fixes one scaling instead of being invariant to all."
    )


def protocol_facts(summary: Summary) -> list[tuple[str, str]]:
    """How it was done, by name; and what was decided where the paper is silent."""
    asked = summary.experiment.configuration["protocol"]
    stopping, bold = asked["stopping"], asked["bold"]
    others = [BEYOND[update] for update in asked["updates"] if update in BEYOND]
    return [
        (
            "learning rate",
            f"chosen for every repeat from {', '.join(f'{rate:g}' for rate in asked['rates'])}: "
            f"{asked['selection_epochs']} epochs on {asked['selection_train']} images, lowest error on "
            f"{asked['selection_validation']} others, the larger on a tie; the candidates are the paper's",
        ),
        (
            "full runs",
            f"{asked['train']} random training images, {asked['validation']} others for validation, batches "
            f"of {asked['batch']}; a fresh split, start and order for every repeat, shared by all updates",
        ),
        (
            "exp. decay",
            f"rate times {asked['exponential']['decay']} after every epoch, {stopping['maximum']} epochs",
        ),
        (
            "bold driver",
            f"rate times {bold['grow']} after an epoch whose loss is not higher, else times "
            f"{bold['shrink']}; stops after epoch {stopping['minimum']} on a training error below "
            f"{stopping['train_error']:g}, a validation error above that of {stopping['lookback']} epochs "
            f"earlier, or one that changed by less than {stopping['change']:g}; {stopping['maximum']} epochs "
            "at most",
        ),
        (
            "decided here",
            "where the paper is silent: pixels are divided by 255, the bold driver's factors, and "
            f"{asked['classifier']} of the classifier start with unit norm",
        ),
        *([("not in the paper", "; ".join(others))] if others else []),
    ]

"""The table of updates: what each is called, what it is to the paper, how figures draw it; needs no torch.

How an update moves weights is defined in :mod:`symoptim.ensemble.registry` for networks that train
together, and in :mod:`symoptim.paper.segnet.updates` for SegNet.
"""

from typing import Any, Literal, NamedTuple

from symoptim.support.plotting import AMBER, BLUE, DARK_ORANGE, GREEN, ORANGE, PURPLE, SKY

Role = Literal["paper", "baseline", "invariant", "rival"]
"""The paper's own updates, its baseline, others that no rescaling changes, and what everybody uses."""
Dashes = str | tuple[float, tuple[float, ...]]


class UpdateInfo(NamedTuple):
    """Title and role of an update, its line in figures, and a note on those that are not the paper's."""

    title: str
    role: Role
    color: str = SKY
    dashes: Dashes = "-"
    note: str = ""

    @property
    def line(self) -> dict[str, Any]:
        """Color and dashes: those let a line below another be seen, and part updates of similar colors."""
        return {"color": self.color, "linestyle": self.dashes}


UPDATES: dict[str, UpdateInfo] = {
    "b-sgd": UpdateInfo("B-SGD", "baseline", ORANGE),
    "sm": UpdateInfo("SM", "paper", BLUE, (0, (5, 2))),
    "un": UpdateInfo("UN", "paper", GREEN),
    "un-momentum": UpdateInfo("UN, momentum", "invariant", SKY, (0, (2, 1.5))),
    "full": UpdateInfo("full", "invariant", note="SGD in the full metric, which no rescaling changes"),
    "geometric": UpdateInfo("geometric", "invariant", note="SGD in the full metric, in another gauge"),
    "sgd": UpdateInfo("SGD", "rival", ORANGE),
    "sgd-plain": UpdateInfo("SGD, no momentum", "rival", DARK_ORANGE, (0, (2, 1.5))),
    "adamw": UpdateInfo("AdamW", "rival", PURPLE, note="as in torch"),
    "invariant-adamw": UpdateInfo(
        "invariant AdamW",
        "invariant",
        AMBER,
        note="AdamW in coordinates that no rescaling of filters changes",
    ),
}
"""Every update by its name."""


def info(update: str) -> UpdateInfo:
    """What there is to know about an update; one that is not listed is a rival of that name."""
    return UPDATES.get(update, UpdateInfo(update, "rival"))

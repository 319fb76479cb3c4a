"""What can be asked for by name; here, so that the command line can start without torch."""

from typing import Literal

DataName = Literal["mnist", "fashion-mnist", "digits"]
DataChoice = Literal["auto", "mnist", "fashion-mnist", "digits"]
"""Auto is MNIST where it can be had; if not, digits do for the quick profile."""
ProfileName = Literal["quick", "paper"]
SceneDataName = Literal["camvid", "roads"]
SceneDataChoice = Literal["auto", "camvid", "roads"]
"""Auto is CamVid where it is found; if not, drawn road scenes do for the quick profile."""
NetworkName = Literal["segnet", "segnet-basic"]
SceneScheduleName = Literal["cosine", "exponential", "bold"]
WeightingName = Literal["none", "median", "root"]
Architecture = Literal["arch1", "arch2"]
ScheduleName = Literal["exponential", "bold"]
Classifier = Literal["rows", "columns"]

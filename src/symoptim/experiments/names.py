"""What can be asked for by name; here, so that the command line can start without torch."""

from typing import Literal

DataName = Literal["mnist", "fashion-mnist", "digits"]
DataChoice = Literal["auto", "mnist", "fashion-mnist", "digits"]
"""Auto is MNIST where it can be had; if not, digits do for the quick profile."""
ProfileName = Literal["quick", "paper"]
Architecture = Literal["arch1", "arch2"]
ScheduleName = Literal["exponential", "bold"]
Classifier = Literal["rows", "columns"]

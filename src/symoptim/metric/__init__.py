"""Metrics that no rescaling of a network can be seen in: a size for every unit, read off the weights."""

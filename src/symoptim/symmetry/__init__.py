"""Dimensional analysis for networks: every positive rescaling of the weights that changes no output."""

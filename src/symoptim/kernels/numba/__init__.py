"""Fused steps on the CPU, compiled by numba."""

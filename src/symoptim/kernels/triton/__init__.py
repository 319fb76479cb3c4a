"""Fused steps on CUDA devices, compiled by Triton."""

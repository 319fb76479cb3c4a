"""The full metric by kernels of CUDA devices."""

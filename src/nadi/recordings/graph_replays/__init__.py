"""Kernels that CUDA or HIP graphs replay: their operators, from the recording of the capture."""

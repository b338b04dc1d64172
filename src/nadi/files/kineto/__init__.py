"""Read and write Kineto traces: the work on host threads and devices that PyTorch profiled."""

"""Read PyTorch's execution traces, and write them with the device's work."""

"""PyTorch execution traces: what the host did, with tensors and process groups."""

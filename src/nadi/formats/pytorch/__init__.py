"""PyTorch execution traces: the operations of the host, with tensors and process groups."""

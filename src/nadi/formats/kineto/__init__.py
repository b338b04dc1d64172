"""Kineto traces: what PyTorch's profiler saw on the host's threads and on devices. Reading."""

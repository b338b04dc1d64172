"""Inference whose weights and caches do not fit in the device's memory."""

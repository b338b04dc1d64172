"""Tensors of a job in tiers of memory: where each lives, and the job with what moves between."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

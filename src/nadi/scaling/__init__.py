"""Larger jobs from smaller ones: more replicas, other shares of operations, other stages."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

"""Build and replay the event graph of a job, and find its critical path."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

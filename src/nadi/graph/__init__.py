"""The event graph of a job: built, replayed, and its critical path walked."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

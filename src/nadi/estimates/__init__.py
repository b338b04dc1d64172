"""The time and memory of a step without a trace, and the search for the best plan."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

"""Times for operations without one: from published measurements, or learned from a recording."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

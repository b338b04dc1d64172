"""How far two jobs are apart: measures, distances, and a naive guess to compare with."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

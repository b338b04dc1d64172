"""Language models and networks, their parallel plans, and the rows of their steps."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

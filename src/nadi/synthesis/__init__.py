"""Jobs like recorded ones: a model learned from jobs, and jobs made from it."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

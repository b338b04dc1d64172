"""Record and run PyTorch: the only room that imports torch."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

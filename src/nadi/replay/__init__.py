"""Run the operators of a recording again. Imports torch, when it runs."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

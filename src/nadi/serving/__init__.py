"""Serving: how many tokens a second a server gives, how late, and from which memory."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

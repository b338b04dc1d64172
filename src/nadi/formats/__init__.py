"""Readers and writers, a file or package per format; telling formats apart."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
